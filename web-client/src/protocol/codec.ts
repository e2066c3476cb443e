/** Frames to messages and back: the only module of the client that encodes or decodes. */

import {
  HEADER_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TEXT_BYTES,
  MEDIA_VERSION,
  type AnyClientMessage,
  type AnyServerMessage,
} from "./types.gen";

/** A text frame that holds no message of this protocol. */
export class BadFrame extends Error {}

const utf8 = new TextEncoder();

/** A batch takes its brackets and commas besides the messages. */
const BATCH_BYTES = MAX_TEXT_BYTES - 1024;

/** Write messages as few text frames as the server's size limit allows, in their order. */
export function encode(messages: readonly AnyClientMessage[]): string[] {
  const frames: string[] = [];
  let batch: string[] = [];
  let bytes = 0;
  const flush = (): void => {
    if (batch.length === 1) frames.push(batch[0]!);
    else if (batch.length > 1) frames.push(`[${batch.join(",")}]`);
    batch = [];
    bytes = 0;
  };
  for (const message of messages) {
    const text = JSON.stringify(message);
    const size = utf8.encode(text).length + 1;
    if (bytes + size > BATCH_BYTES) flush();
    batch.push(text);
    bytes += size;
  }
  flush();
  return frames;
}

/**
 * Read a text frame: one message or an array of them.
 *
 * Types that this client does not know are handed on as they are; whoever dispatches passes them
 * over, so that a newer server may speak to an older page. Throws `BadFrame` on anything else.
 */
export function decode(frame: string): AnyServerMessage[] {
  let value: unknown;
  try {
    value = JSON.parse(frame);
  } catch {
    throw new BadFrame("text frame is not JSON");
  }
  const messages: unknown[] = Array.isArray(value) ? value : [value];
  for (const message of messages) {
    if (typeof message !== "object" || message === null) throw new BadFrame("not a message");
    if (typeof (message as { type?: unknown }).type !== "string") {
      throw new BadFrame("message without a type");
    }
  }
  return messages as AnyServerMessage[];
}

export const MediaKind = { file: 1, camera: 2, microphone: 3 } as const;

/** One chunk of one stream. `sequence` counts chunks from 0; `ptsUs` is 0 for files. */
export interface MediaFrame {
  kind: number;
  flags: number;
  stream: number;
  sequence: number;
  ptsUs: bigint;
  payload: Uint8Array;
}

/** Write the binary frame: a 24-byte header in network order, then the payload. */
export function encodeMedia(frame: MediaFrame): Uint8Array<ArrayBuffer> {
  if (frame.payload.length > MAX_PAYLOAD_BYTES) throw new RangeError("payload over 64 KiB");
  const bytes = new Uint8Array(HEADER_BYTES + frame.payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, MEDIA_VERSION);
  view.setUint8(1, frame.kind);
  view.setUint16(2, frame.flags);
  view.setUint32(4, frame.stream);
  view.setUint32(8, frame.sequence);
  view.setBigInt64(12, frame.ptsUs);
  view.setUint32(20, frame.payload.length);
  bytes.set(frame.payload, HEADER_BYTES);
  return bytes;
}

/** Read a binary frame; throws `BadFrame` when it is not one. */
export function decodeMedia(bytes: Uint8Array): MediaFrame {
  if (bytes.length < HEADER_BYTES) throw new BadFrame("binary frame shorter than its header");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint8(0) !== MEDIA_VERSION) throw new BadFrame("media version is not 1");
  const kind = view.getUint8(1);
  if (kind < MediaKind.file || kind > MediaKind.microphone) {
    throw new BadFrame("media kind is unknown");
  }
  const length = view.getUint32(20);
  if (length !== bytes.length - HEADER_BYTES) throw new BadFrame("payload length differs");
  if (length > MAX_PAYLOAD_BYTES) throw new BadFrame("payload over 64 KiB");
  return {
    kind,
    flags: view.getUint16(2),
    stream: view.getUint32(4),
    sequence: view.getUint32(8),
    ptsUs: view.getBigInt64(12),
    payload: bytes.subarray(HEADER_BYTES),
  };
}
