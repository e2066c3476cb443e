import { beforeEach, describe, expect, test } from "vitest";
import { MediaKind, decodeMedia } from "../src/protocol/codec";
import type { AnyClientMessage, StreamOpen } from "../src/protocol/types.gen";
import { MAX_KEPT_BYTES, Recording } from "../src/recording";

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
  get bytes(): number {
    return this.chunks.reduce((sum, { payload }) => sum + payload.length, 0);
  }
}

const CHUNK = 960; // 20 ms at 48 kHz
const samples = (value: number): Int16Array<ArrayBuffer> => new Int16Array(CHUNK).fill(value);

let line: Line;
let recording: Recording;
const ends: (string | null)[] = [];

beforeEach(() => {
  ends.length = 0;
  line = new Line();
  const news = { recordingEnded: (code: string | null) => void ends.push(code) };
  recording = new Recording(line, news, 48_000, "Dr Wu", true);
  recording.connected();
});

const opened = (offset = 0, credit = 1_000_000): void => {
  const { stream } = line.open;
  recording.receive({ type: "stream.opened", stream, asset: "a-1", offset, credit });
};

describe("a recording", () => {
  test("says its real rate and sends what was heard before the server was ready", () => {
    recording.take(samples(1));
    expect(line.chunks).toHaveLength(0);
    opened();
    recording.take(samples(2));
    expect(line.open).toMatchObject({
      kind: "microphone",
      media_type: "audio/pcm;rate=48000;channels=1",
      asks: true,
    });
    expect(line.chunks.map(({ kind, sequence, ptsUs }) => [kind, sequence, ptsUs])).toEqual([
      [MediaKind.microphone, 0, 0n],
      [MediaKind.microphone, 1, 20_000n],
    ]);
  });

  test("never sends beyond its credit", () => {
    opened(0, 3 * CHUNK);
    recording.take(samples(1));
    recording.take(samples(2));
    expect(line.bytes).toBe(2 * CHUNK);
    const { stream } = line.open;
    recording.receive({ type: "stream.credit", stream, credit: CHUNK, received: 2 * CHUNK });
    expect(line.bytes).toBe(4 * CHUNK);
  });

  test("R57 goes on after a lost connection where the server stands", () => {
    opened();
    for (let n = 0; n < 5; n += 1) recording.take(samples(n));
    recording.disconnected();
    recording.take(samples(5));
    line.chunks = [];
    recording.connected();
    expect(line.open.asset).toBe("a-1");
    opened(2 * CHUNK * 2 + 100);
    expect(line.bytes).toBe(4 * CHUNK * 2 - 100);
    expect(line.chunks[0]?.sequence).toBe(0);
  });

  test("M2 closes only after the last sample was sent", () => {
    opened(0, 2 * CHUNK);
    recording.take(samples(1));
    recording.take(samples(2));
    recording.end();
    const closes = (): number =>
      line.messages.filter((message) => message.type === "stream.close").length;
    expect(closes()).toBe(0);
    const { stream } = line.open;
    recording.receive({
      type: "stream.credit",
      stream,
      credit: 2 * CHUNK,
      received: 2 * CHUNK,
    });
    expect([closes(), line.bytes]).toEqual([1, 4 * CHUNK]);
    recording.receive({ type: "stream.closed", stream, asset: "a-1", sha256: "00" });
    expect(ends).toEqual([null]);
  });

  test("ends when the connection is away for longer than it can keep", () => {
    for (let kept = 0; kept <= MAX_KEPT_BYTES; kept += 2 * CHUNK) recording.take(samples(0));
    expect(ends).toEqual(["upload_abandoned"]);
  });
});
