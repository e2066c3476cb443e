import { describe, expect, test } from "vitest";
import { BadFrame, decode, decodeMedia, encode, encodeMedia } from "../../src/protocol/codec";
import { MAX_TEXT_BYTES, type AnyClientMessage } from "../../src/protocol/types.gen";
import { vectors } from "../vectors";

interface TextVectors {
  valid: {
    name: string;
    frame: string;
    messages: { class: string; message: AnyClientMessage }[];
  }[];
}

interface MediaVectors {
  valid: {
    name: string;
    hex: string;
    fields: {
      stream: number;
      sequence: number;
      kind: number;
      flags: number;
      pts_us: number;
      payload_hex: string;
    };
  }[];
  invalid: { name: string; hex: string }[];
}

const unhex = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

describe("text frames", () => {
  const server = vectors<TextVectors>("server_messages");
  const known = new Set(
    server.valid.flatMap(({ messages }) => messages.map((m) => m.message.type)),
  );
  test.each(server.valid)("the server's frame is read: $name", ({ frame, messages }) => {
    // Types and fields of a later version pass through; the session passes over what it cannot use.
    const read = decode(frame).filter(({ type }) => known.has(type as never));
    expect(read).toMatchObject(messages.map(({ message }) => message));
    expect(read).toHaveLength(messages.length);
  });

  const client = vectors<TextVectors>("client_messages");
  test.each(client.valid)(
    "a client's message is one that the server reads: $name",
    ({ messages }) => {
      const told = messages.map(({ message }) => message);
      expect(encode(told).flatMap(decode)).toEqual(told);
    },
  );

  test("a batch is cut where the server's size limit is, and keeps its order", () => {
    const text = "é".repeat(40_000);
    const messages = Array.from({ length: 9 }, (_, i): AnyClientMessage => ({
      type: "ask",
      turn: `t${i}`,
      text,
    }));
    const frames = encode(messages);
    expect(frames.length).toBe(3);
    for (const frame of frames) {
      expect(new TextEncoder().encode(frame).length).toBeLessThanOrEqual(MAX_TEXT_BYTES);
    }
    expect(frames.flatMap(decode)).toEqual(messages);
  });

  test.each(["", "{", "3", "null", "[1]", "[null]", "{}", '{"type":1}', '"hello"'])(
    "what is no message is refused: %s",
    (frame) => {
      expect(() => decode(frame)).toThrow(BadFrame);
    },
  );

  test("a type of a newer server is handed on, not refused", () => {
    expect(decode('{"type":"room.painted","colour":"blue"}')).toHaveLength(1);
  });
});

describe("media frames", () => {
  const media = vectors<MediaVectors>("media_headers");
  // JSON numbers above 2^53 are not exact here; the header itself is compared whole.
  test.each(media.valid)(
    "a frame is written and read as everywhere: $name",
    ({ hex: bytes, fields }) => {
      const frame = decodeMedia(unhex(bytes));
      expect(frame.stream).toBe(fields.stream);
      expect(frame.sequence).toBe(fields.sequence);
      expect(frame.kind).toBe(fields.kind);
      expect(frame.flags).toBe(fields.flags);
      expect(Number(frame.ptsUs)).toBe(fields.pts_us);
      expect(hex(frame.payload)).toBe(fields.payload_hex);
      expect(hex(encodeMedia(frame))).toBe(bytes);
    },
  );

  test.each(media.invalid)("what is no frame is refused: $name", ({ hex: bytes }) => {
    expect(() => decodeMedia(unhex(bytes))).toThrow(BadFrame);
  });

  test("a payload over 64 KiB is not written", () => {
    const payload = new Uint8Array(65_537);
    const frame = { kind: 1, flags: 0, stream: 1, sequence: 0, ptsUs: 0n, payload };
    expect(() => encodeMedia(frame)).toThrow(RangeError);
  });
});
