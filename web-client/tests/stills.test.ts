import { beforeEach, describe, expect, test } from "vitest";
import { MediaKind, decodeMedia } from "../src/protocol/codec";
import type { AnyClientMessage, StreamOpen } from "../src/protocol/types.gen";
import { Stills } from "../src/stills";

class Line {
  messages: AnyClientMessage[] = [];
  chunks: ReturnType<typeof decodeMedia>[] = [];

  send(...messages: AnyClientMessage[]): boolean {
    this.messages.push(...messages);
    return true;
  }
  sendMedia(frame: Uint8Array<ArrayBuffer>): boolean {
    this.chunks.push(decodeMedia(frame));
    return true;
  }
  get open(): StreamOpen {
    return this.messages.filter((message) => message.type === "stream.open").at(-1)!;
  }
}

const still = (size: number, value = 1): Uint8Array<ArrayBuffer> => new Uint8Array(size).fill(value);

let line: Line;
let stills: Stills;
const ends: (string | null)[] = [];

beforeEach(() => {
  ends.length = 0;
  line = new Line();
  stills = new Stills(line, { stillsEnded: (code) => void ends.push(code) }, "Bench");
  stills.connected();
});

const opened = (credit = 1_000_000): void => {
  const { stream } = line.open;
  stills.receive({ type: "stream.opened", stream, asset: "a-1", offset: 0, credit });
};

describe("a camera's stills", () => {
  test("go in pieces of one time, the last of each flagged", () => {
    opened();
    stills.take(still(150_000), 40n);
    stills.take(still(10), 50n);
    expect(line.open).toMatchObject({ kind: "camera", media_type: "image/jpeg", name: "Bench" });
    expect(line.chunks.map(({ kind, flags, sequence, ptsUs }) => [kind, flags, sequence, ptsUs])).toEqual([
      [MediaKind.camera, 0, 0, 40n],
      [MediaKind.camera, 0, 1, 40n],
      [MediaKind.camera, 1, 2, 40n],
      [MediaKind.camera, 1, 3, 50n],
    ]);
  });

  test("wait for credit whole, and the newest takes the place of the one that waits", () => {
    opened(1_000);
    for (const value of [1, 2, 3]) stills.take(still(2_000, value), BigInt(value));
    expect(line.chunks).toHaveLength(0);
    const { stream } = line.open;
    stills.receive({ type: "stream.credit", stream, credit: 5_000, received: 0 });
    expect(line.chunks.map(({ payload, ptsUs }) => [payload[0], ptsUs])).toEqual([[3, 3n]]);
    expect(stills.passedOver).toBe(2);
  });

  test("go on in the same asset after a lost connection, counted from 0 again", () => {
    opened();
    stills.take(still(10), 1n);
    stills.disconnected();
    stills.take(still(10), 2n);
    const before = line.open.stream;
    stills.connected();
    expect(line.open).toMatchObject({ asset: "a-1" });
    expect(line.open.stream).not.toBe(before);
    opened();
    expect(line.chunks.map(({ sequence, ptsUs }) => [sequence, ptsUs])).toEqual([
      [0, 1n],
      [0, 2n],
    ]);
  });

  test("end with the camera, and nothing that waits is sent behind it", () => {
    opened(5);
    stills.take(still(10), 1n);
    stills.end();
    stills.take(still(10), 2n);
    expect(line.chunks).toHaveLength(0);
    const { stream } = line.open;
    expect(line.messages.at(-1)).toMatchObject({ type: "stream.close", stream });
    stills.receive({ type: "stream.closed", stream, asset: "a-1" });
    expect(ends).toEqual([null]);
  });

  test("tell why the server ended them", () => {
    const { stream } = line.open;
    stills.receive({ type: "stream.closed", stream, code: "room_full", message: "full" });
    expect(ends).toEqual(["room_full"]);
  });
});
