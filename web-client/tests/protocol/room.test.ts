import { describe, expect, test } from "vitest";
import {
  EventGap,
  MAX_KEYFRAMES,
  apply,
  emptyRoom,
  fromSnapshot,
  type RoomState,
} from "../../src/protocol/room";
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

  test("a camera keeps its newest keyframes with what was read on them", () => {
    const shown = (frame: number, like: number | null): AnyEvent =>
      ({
        type: "asset.keyframe",
        asset: "a",
        keyframe: { frame, pts_us: frame, width: 9, height: 9, like },
      }) as unknown as AnyEvent;
    const read = (frame: number): AnyEvent =>
      ({
        type: "asset.observed",
        asset: "a",
        rows: [{ type: "text", id: `r${frame}`, box: shape, text: "x", score: 1, frame, pts_us: frame }],
      }) as unknown as AnyEvent;
    let state = apply(emptyRoom(), { ...events[0]!, seq: 1, epoch: "e1", at, actor });
    const add = (event: AnyEvent): void => {
      state = apply(state, { ...event, seq: state.seq + 1, epoch: "e1", at, actor });
    };
    for (let frame = 0; frame < MAX_KEYFRAMES + 3; frame += 1) {
      add(shown(frame, frame > 2 && frame <= 5 ? 2 : null));
      if (frame === 1 || frame === 2) add(read(frame));
    }
    const asset = state.assets.get("a")!;
    expect(asset.keyframes).toHaveLength(MAX_KEYFRAMES);
    expect(asset.keyframes[0]!.frame).toBe(3);
    // Row 2 is that of keyframes 3 to 5, which are still there.
    expect(asset.rows.map(({ id }) => id)).toEqual(["r2"]);
  });
});
