import { describe, expect, test } from "vitest";
import { Session, type Output } from "../../src/protocol/session";
import type { Act } from "../../src/protocol/outbox";
import type { AnyEvent, AnyServerMessage, Snapshot, Welcome } from "../../src/protocol/types.gen";

const identity = {
  session: "0123456789abcdef0123456789abcdef",
  client: "test/1",
  name: "Mei Lin",
  department: "Radiology",
  token: null,
};
const me = { id: "p-mei", name: "Mei Lin", department: "Radiology" };
const other = { id: "p-otto", name: "Otto" };
const shape = { type: "rectangle", x: 1, y: 2, width: 3, height: 4 } as const;
const put = (id: string): Act => ({
  type: "op",
  op_id: `op-${id}`,
  op: { type: "annotation.put", annotation: { id, target: { asset: "a" }, shape } },
});

function welcome(changes: Partial<Welcome> = {}): Welcome {
  return {
    type: "welcome",
    participant: "p-mei",
    name: "Mei Lin",
    role: "member",
    room: "ward-3",
    epoch: "e1",
    head: 0,
    limits: { max_asset_bytes: 1e6, max_streams: 4, initial_credit_bytes: 65_536 },
    heartbeat_s: 5,
    media: { base: "/v1/assets", ticket: "tk", expires_at: 0 },
    snapshot: { seq: 0, epoch: "e1" },
    ...changes,
  };
}

function event(seq: number, body: object, actor: object = other): AnyEvent {
  return { seq, epoch: "e1", at: 0, actor, ...body } as AnyEvent;
}

const comment = (seq: number): AnyEvent =>
  event(seq, { type: "comment.add", id: `c${seq}`, text: "hm" });
const kinds = (outputs: Output[]): string[] => outputs.map((output) => output.do);
const sent = (outputs: Output[]) => outputs.flatMap((o) => (o.do === "send" ? o.messages : []));

function joined(acts: Act[] = [], snapshot?: Snapshot): Session {
  const session = new Session(identity, acts);
  session.hello();
  session.receive(welcome(snapshot ? { snapshot } : {}));
  return session;
}

describe("greeting", () => {
  test("the first hello has no position, the next one has the position reached", () => {
    const session = new Session(identity);
    expect(session.hello().resume).toBeUndefined();
    session.receive(welcome());
    session.receive(comment(1));
    expect(session.hello().resume).toEqual({ epoch: "e1", seq: 1 });
  });

  test("R22: each reconnect asks from what was read last, also twice without news", () => {
    const session = joined();
    for (const seq of [1, 2, 3]) session.receive(comment(seq));
    expect(session.hello().resume?.seq).toBe(3);
    session.receive({ ...welcome(), snapshot: null });
    expect(session.hello().resume?.seq).toBe(3);
  });

  test("R47: the token is part of every hello, the newest one", () => {
    const session = new Session({ ...identity, token: "one" });
    expect(session.hello().token).toBe("one");
    session.receive(welcome());
    session.identity.token = "two";
    expect(session.hello().token).toBe("two");
  });

  test("R40: a snapshot of another epoch replaces the copy, and only unanswered acts are sent", () => {
    const session = joined();
    session.submit(put("m1"));
    session.submit(put("m2"));
    session.receive(comment(1));
    session.receive({ type: "ack", op_id: "op-m1", seq: 2 });
    const outputs = session.receive(welcome({ epoch: "e2", snapshot: { seq: 7, epoch: "e2" } }));
    expect(session.room.comments.size).toBe(0);
    expect(sent(outputs)).toEqual([put("m2")]);
  });

  test("a welcome that does not fit the own copy gives the copy up, not the acts", () => {
    const session = joined([put("m1")]);
    const outputs = session.receive(welcome({ epoch: "e2", snapshot: null }));
    expect(kinds(outputs)).toContain("restart");
    expect(session.hello().resume).toBeUndefined();
    expect(session.outbox.unacked()).toEqual([put("m1")]);
  });

  test("R35: a welcome that cannot be taken in starts over instead of loading for ever", () => {
    const session = joined([put("m1")]);
    const broken = { seq: 3, epoch: "e1", annotations: [null] } as unknown as Snapshot;
    expect(kinds(session.receive(welcome({ snapshot: broken })))).toContain("restart");
    expect(session.hello().resume).toBeUndefined();
    expect(session.outbox.unacked()).toEqual([put("m1")]);
  });

  test("the people of the welcome replace those before", () => {
    const session = joined();
    session.receive({ type: "presence", person: { participant: "ghost", name: "G" } });
    session.receive(welcome({ people: [{ participant: "p-otto", name: "Otto" }] }));
    expect([...session.people.keys()]).toEqual(["p-otto"]);
  });
});

describe("events", () => {
  test("a gap restarts the connection and keeps the state", () => {
    const session = joined();
    session.receive(comment(1));
    expect(kinds(session.receive(comment(3)))).toEqual(["restart"]);
    expect(session.room.seq).toBe(1);
  });

  test("gaps that no resume mends give the copy up", () => {
    const session = joined();
    session.receive(comment(1));
    for (let i = 0; i < 4; i++) {
      session.hello();
      session.receive({ ...welcome(), snapshot: null });
      session.receive(comment(3));
    }
    expect(session.hello().resume).toBeUndefined();
  });

  test("an event heard before changes nothing", () => {
    const session = joined();
    session.receive(comment(1));
    const room = session.room;
    expect(session.receive(comment(1))).toEqual([]);
    expect(session.room).toBe(room);
  });

  test("a message of a newer server is passed over", () => {
    const session = joined();
    const newer = { type: "room.painted", colour: "blue" } as unknown as AnyServerMessage;
    expect(session.receive(newer)).toEqual([]);
  });
});

describe("heartbeats", () => {
  const beat = (head: number): AnyServerMessage => ({ type: "heartbeat", head, t: head + 0.5 });

  test("each is answered with its own time", () => {
    expect(sent(joined().receive(beat(0)))).toEqual([{ type: "heartbeat.ack", t: 0.5 }]);
  });

  test("a silent loss shows at the second heartbeat", () => {
    const session = joined();
    expect(kinds(session.receive(beat(2)))).toEqual(["send"]);
    expect(kinds(session.receive(beat(2)))).toEqual(["restart"]);
  });

  test("R55: a slow reader that still gets events is not restarted", () => {
    const session = joined();
    session.receive(beat(100));
    session.receive(comment(1));
    expect(kinds(session.receive(beat(200)))).toEqual(["send"]);
    session.receive(comment(2));
    expect(kinds(session.receive(beat(300)))).toEqual(["send"]);
  });
});

describe("acts", () => {
  test("an act is sent after each welcome until its answer comes, in the order of making", () => {
    const session = new Session(identity, [put("m1")]);
    session.submit(put("m2"));
    session.hello();
    expect(sent(session.receive(welcome()))).toEqual([put("m1"), put("m2")]);
    session.receive({ type: "ack", op_id: "op-m1", seq: 1 });
    session.hello();
    expect(sent(session.receive({ ...welcome(), snapshot: null }))).toEqual([put("m2")]);
  });

  test("an acknowledged mark stays shown until its event comes, and is shown once then", () => {
    const session = joined();
    session.submit(put("m1"));
    expect(session.marks().map(({ pending }) => pending)).toEqual([true]);
    session.receive({ type: "ack", op_id: "op-m1", seq: 1 });
    expect(session.marks()).toHaveLength(1);
    const annotation = { id: "m1", target: { asset: "a" }, shape };
    session.receive(event(1, { type: "annotation.put", annotation, op_id: "op-m1" }, me));
    expect(session.marks().map(({ pending }) => pending)).toEqual([false]);
    expect(session.outbox.entries()).toEqual([]);
  });

  test("the event alone settles an own act; another's op of the same id does not", () => {
    const session = joined();
    session.submit(put("m1"));
    const annotation = { id: "m9", target: { asset: "a" }, shape };
    session.receive(event(1, { type: "annotation.put", annotation, op_id: "op-m1" }, other));
    expect(session.outbox.unacked()).toHaveLength(1);
    session.receive(event(2, { type: "annotation.put", annotation, op_id: "op-m1" }, me));
    expect(session.outbox.entries()).toHaveLength(0);
  });

  test("R35: a mark made and deleted offline is gone for good", () => {
    const session = joined();
    session.submit(put("m1"));
    session.submit({ type: "op", op_id: "op-d", op: { type: "annotation.delete", id: "m1" } });
    expect(session.marks()).toEqual([]);
    session.hello();
    const outputs = session.receive({ ...welcome(), snapshot: null });
    expect(sent(outputs).map((act) => (act.type === "op" ? act.op.type : ""))).toEqual([
      "annotation.put",
      "annotation.delete",
    ]);
  });

  test("R64: an own edit under way stays on top of a colleague's", () => {
    const session = joined();
    const annotation = { id: "m", target: { asset: "a" }, shape, label: "old" };
    session.receive(event(1, { type: "annotation.put", annotation }));
    session.submit({
      type: "op",
      op_id: "op-1",
      op: { type: "annotation.patch", id: "m", shape: { ...shape, x: 50 } },
    });
    session.receive(event(2, { type: "annotation.patch", id: "m", label: "theirs", shape }));
    const [shown] = session.marks();
    expect(shown?.mark.annotation).toMatchObject({ label: "theirs", shape: { x: 50 } });
  });

  test("a refusal that may pass is tried again, one that cannot pass is told once", () => {
    const session = joined();
    session.submit(put("m1"));
    const refused = { type: "nack", op_id: "op-m1", code: "unavailable", message: "no" } as const;
    expect(session.receive({ ...refused, retry_after: 3 })).toEqual([
      { do: "later", act: "op-m1", seconds: 3 },
    ]);
    expect(session.again("op-m1")).toEqual(put("m1"));
    const final = session.receive({ ...refused, code: "op_conflict" });
    expect(kinds(final)).toEqual(["refused", "room"]);
    expect(session.again("op-m1")).toBeNull();
    expect(session.receive({ ...refused, code: "op_conflict" })).toEqual([]);
  });

  test("a refusal that never passes is told in the end", () => {
    const session = joined();
    session.submit(put("m1"));
    const nack = { type: "nack", op_id: "op-m1", code: "overloaded", message: "no" } as const;
    const answers = Array.from({ length: 6 }, () => kinds(session.receive(nack))[0]);
    expect(answers).toEqual(["later", "later", "later", "later", "later", "refused"]);
  });

  test("an error that names an act answers it", () => {
    const session = joined();
    session.submit(put("m1"));
    const error = { type: "error", code: "bad_message", message: "no", ref: "op-m1" } as const;
    expect(kinds(session.receive(error))).toEqual(["refused", "room"]);
    expect(session.outbox.unacked()).toEqual([]);
  });

  test("a full outbox refuses instead of forgetting", () => {
    const session = joined();
    for (let i = 0; i < 1_000; i++) expect(session.submit(put(`m${i}`))).toBe(true);
    expect(session.submit(put("more"))).toBe(false);
    expect(session.outbox.unacked()).toHaveLength(1_000);
  });

  test("a question is settled by the turn it starts", () => {
    const session = joined();
    session.submit({ type: "ask", turn: "t1", text: "Why?" });
    session.receive(event(1, { type: "turn.started", turn: "t1", question: "Why?" }, me));
    expect(session.outbox.entries()).toEqual([]);
  });
});
