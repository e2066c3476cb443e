import { describe, expect, test } from "vitest";
import { isTurnedAway, sentence, turnedAwayWords } from "../src/advice";
import { invitationOf } from "../src/identity";
import { mayUpload, mayWrite, roleNote } from "../src/roles";

const tokenOf = (claims: object): string =>
  `head.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.signature`;

describe("why nobody comes in", () => {
  const here = { name: "Dr Wu", department: "", room: "ward" };
  const cases = [
    ["unauthenticated", null, null, "This server needs an invitation link."],
    ["unauthenticated", "t", null, "Your invitation is not valid; ask for a new link."],
    ["token_expired", "t", here, "Your invitation has ended; ask for a new link."],
    ["forbidden", "t", { ...here, room: "other" }, "Your invitation is for another room."],
    ["forbidden", "t", here, "You have no access to this room."],
  ] as const;
  test.each(cases)("%s with the token %s: %o", (error, token, invitation, words) => {
    expect(turnedAwayWords(error, token, invitation, "ward")).toBe(words);
  });

  test("it is told at the door only when it is about who comes", () => {
    expect([4401, 4403, 4409, 4400, 1006].filter(isTurnedAway)).toEqual([4401, 4403]);
  });
});

describe("what an invitation says", () => {
  test("a name beyond ASCII is read whole", () => {
    const who = { name: "吴医生 Müller", department: "检验科", room: "ward-3" };
    expect(invitationOf(tokenOf({ sub: "wu", ...who }))).toEqual(who);
  });

  test("without a name the participant stands for it", () => {
    expect(invitationOf(tokenOf({ sub: "wu", room: "r" }))?.name).toBe("wu");
  });

  test.each([null, "", "abc", "a.%%%.c", "a.bnVsbA.c"])("%s says nothing", (token) => {
    expect(invitationOf(token)).toBeNull();
  });
});

describe("what a role is offered", () => {
  test("as the server decides it", () => {
    const roles = ["chair", "member", "observer", "camera", "auditor"] as const;
    expect(roles.filter(mayWrite)).toEqual(["chair", "member"]);
    expect(roles.filter(mayUpload)).toEqual(["chair", "member", "camera"]);
  });

  test("who may not do everything is told so", () => {
    expect(roleNote("observer")).toBe("You are here as an observer: you can look and read.");
    expect(roleNote("camera")).toBe("You are here as a camera: you can look and add pictures.");
    expect(roleNote("member")).toBe("");
  });
});

test("a message of the server reads as a sentence", () => {
  expect(sentence("your role may not ask")).toBe("Your role may not ask.");
  expect(sentence("Done.")).toBe("Done.");
  expect(sentence("")).toBe("");
});
