import { describe, expect, test } from "vitest";
import { parts } from "../../src/view/answer";

const box = { type: "rectangle", x: 0, y: 0, width: 1, height: 1 } as const;

describe("the parts of an answer", () => {
  test("offsets are code points, also behind characters outside the first plane", () => {
    const text = "🧪𝛂 糖化血红蛋白 9.1 %";
    const start = [...text].indexOf("9");
    const cut = parts(text, [{ start, end: start + 3, kind: "out_of_range" }], []);
    expect(cut.find(({ kind }) => kind !== null)?.text).toBe("9.1");
    expect(cut.map(({ text: part }) => part).join("")).toBe(text);
  });

  test("overlapping spans and links cut one another, and out of range is what shows", () => {
    const link = { start: 0, end: 6, asset: "a", observation: "o", box };
    const cut = parts(
      "K 6.1 mmol/l",
      [
        { start: 2, end: 5, kind: "number" },
        { start: 2, end: 5, kind: "out_of_range" },
        { start: 6, end: 12, kind: "unit" },
      ],
      [link],
    );
    expect(cut.map(({ text, kind, link: tied }) => [text, kind, tied !== null])).toEqual([
      ["K ", null, true],
      ["6.1", "out_of_range", true],
      [" ", null, true],
      ["mmol/l", "unit", false],
    ]);
  });

  test("a span that reaches beyond the delivered text is cut off there", () => {
    expect(
      parts("abc", [{ start: 2, end: 9, kind: "entity" }], []).map(({ text }) => text),
    ).toEqual(["ab", "c"]);
  });

  test("a number that no row stands behind, and its unit, look like any other word", () => {
    const name = { start: 0, end: 3, asset: "a", observation: "o", box };
    const cut = parts(
      "CRP 12 mg/L",
      [
        { start: 0, end: 3, kind: "entity" },
        { start: 4, end: 6, kind: "number" },
        { start: 7, end: 11, kind: "unit" },
      ],
      [name],
    );
    expect(cut.map(({ text, kind, link }) => [text, kind, link !== null])).toEqual([
      ["CRP", "entity", true],
      [" 12 mg/L", null, false],
    ]);
  });

  test("the unit behind a linked number looks as read as the number", () => {
    const value = { start: 0, end: 3, asset: "a", observation: "o", box };
    const cut = parts(
      "4.1 mmol/l",
      [
        { start: 0, end: 3, kind: "number" },
        { start: 4, end: 10, kind: "unit" },
      ],
      [value],
    );
    expect(cut.map(({ text, kind }) => [text, kind])).toEqual([
      ["4.1", "number"],
      [" ", null],
      ["mmol/l", "unit"],
    ]);
  });

  test("no text has no parts", () => {
    expect(parts("", [], [])).toEqual([]);
  });
});
