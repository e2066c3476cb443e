import { describe, expect, test } from "vitest";
import { EventGap, apply, emptyRoom, fromSnapshot, type RoomState } from "../../src/protocol/room";
import type { AnyEvent, Snapshot } from "../../src/protocol/types.gen";
import { vectors } from "../vectors";

interface History {
  name: string;
  start: Snapshot | null;
  events: AnyEvent[];
  gap_at: number | null;
  snapshot: Snapshot;
}

const histories = vectors<History[]>("room_history");
const begin = ({ start }: History): RoomState =>
  start === null ? emptyRoom() : fromSnapshot(start);

function fold(state: RoomState, events: readonly AnyEvent[]): RoomState {
  return events.reduce(apply, state);
}

describe("the histories that every reducer agrees on", () => {
  test.each(histories)("$name", (history) => {
    let state = begin(history);
    for (const [index, event] of history.events.entries()) {
      if (index === history.gap_at) {
        expect(() => apply(state, event)).toThrow(EventGap);
        break;
      }
      state = apply(state, event);
    }
    expect(state).toEqual(fromSnapshot(history.snapshot));
  });

  test.each(histories.filter(({ gap_at }) => gap_at === null))(
    "heard twice it is the same: $name",
    (history) => {
      const once = fold(begin(history), history.events);
      expect(fold(once, history.events)).toBe(once);
    },
  );
});

const actor = { id: "p-mei", name: "Mei Lin" };
const at = 1_767_225_600_000;

function numbered(events: readonly object[]): AnyEvent[] {
  return events.map((event, i) => ({ seq: i + 1, epoch: "e1", at, actor, ...event }) as AnyEvent);
}

describe("states", () => {
  const shape = { type: "rectangle", x: 1, y: 2, width: 3, height: 4 } as const;
  const events = numbered([
    { type: "asset.opened", asset: "a", name: "sheet.png" },
    { type: "annotation.put", annotation: { id: "m", target: { asset: "a" }, shape } },
    { type: "turn.started", turn: "t", question: "Why?" },
    { type: "turn.delta", turn: "t", offset: 0, text: "Because." },
  ]);

  test("what an event does not touch stays the same object", () => {
    const before = fold(emptyRoom(), events.slice(0, 3));
    const after = apply(before, events[3]!);
    expect(after.annotations).toBe(before.annotations);
    expect(after.assets).toBe(before.assets);
    expect(before.turns.get("t")?.text).toBe("");
    expect(after.turns.get("t")?.text).toBe("Because.");
  });

  test("a missing event and another epoch are gaps, and the state stays as it was", () => {
    const state = fold(emptyRoom(), events.slice(0, 2));
    expect(() => apply(state, events[3]!)).toThrow(EventGap);
    expect(() => apply(state, { ...events[2]!, epoch: "e2" })).toThrow(EventGap);
    expect(state.seq).toBe(2);
  });

  test("an event of a newer server counts and changes nothing", () => {
    const state = fold(emptyRoom(), events);
    const newer = { type: "finding.signed", seq: 5, epoch: "e1", at, actor } as unknown as AnyEvent;
    const after = apply(state, newer);
    expect(after.seq).toBe(5);
    expect(after.turns).toBe(state.turns);
  });
});
