/**
 * Sound on its way to the room while it is recorded: kept until the server holds it, so that a
 * broken connection costs no word.
 */

import { MediaKind, encodeMedia } from "./protocol/codec";
import type { ErrorCode, StreamClosed, StreamCredit, StreamOpened } from "./protocol/types.gen";
import type { Line } from "./upload";

/** A minute and a half at 48 kHz; a connection that is away longer ends the recording. */
export const MAX_KEPT_BYTES = 8 * 1024 * 1024;
const BYTES_A_SAMPLE = 2;
/** Uploads count their streams from 1. */
const FIRST_STREAM = 1_000_000;

export interface RecordingNews {
  /** The recording is over; `code` says why when it was not stored. */
  recordingEnded(code: ErrorCode | null, message: string): void;
}

interface Chunk {
  readonly start: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

let nextStream = FIRST_STREAM;

export class Recording {
  asset: string | null = null;
  private stream = 0;
  private isOpen = false;
  private isEnded = false;
  private isClosing = false;
  private kept: Chunk[] = [];
  private keptBytes = 0;
  private size = 0;
  private sent = 0;
  private credit = 0;
  private sequence = 0;

  constructor(
    private readonly line: Line,
    private readonly news: RecordingNews,
    private readonly rate: number,
    private readonly name: string,
    private readonly asks: boolean,
  ) {}

  /** A connection is there: begin, or go on where the server stopped. */
  connected(): void {
    this.stream = nextStream++;
    this.isOpen = this.isClosing = false;
    this.line.send({
      type: "stream.open",
      stream: this.stream,
      kind: "microphone",
      name: this.name.slice(0, 255),
      media_type: `audio/pcm;rate=${this.rate};channels=1`,
      asks: this.asks,
      ...(this.asset === null ? {} : { asset: this.asset }),
    });
  }

  disconnected(): void {
    this.isOpen = false;
    this.stream = 0;
  }

  /** Take what the microphone heard. */
  take(samples: Int16Array<ArrayBuffer>): void {
    if (this.isEnded || samples.length === 0) return;
    if (this.keptBytes + samples.byteLength > MAX_KEPT_BYTES) {
      this.end();
      this.news.recordingEnded("upload_abandoned", "The connection was away for too long.");
      return;
    }
    const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
    this.kept.push({ start: this.size, bytes });
    this.size += bytes.length;
    this.keptBytes += bytes.length;
    this.pump();
  }

  /** Nothing more is heard; what is kept is still sent. */
  end(): void {
    this.isEnded = true;
    this.pump();
  }

  /** Take an answer of the server; false when it is about another stream. */
  receive(message: StreamOpened | StreamCredit | StreamClosed): boolean {
    if (this.stream === 0 || message.stream !== this.stream) return false;
    switch (message.type) {
      case "stream.opened":
        this.asset = message.asset;
        this.forget(message.offset);
        this.sent = message.offset;
        this.credit = message.credit;
        this.sequence = 0;
        this.isOpen = true;
        this.pump();
        break;
      case "stream.credit":
        this.credit += message.credit;
        this.forget(message.received);
        this.pump();
        break;
      case "stream.closed":
        this.stream = 0;
        this.isOpen = false;
        this.isEnded = true;
        this.news.recordingEnded(message.code ?? null, message.message ?? "");
    }
    return true;
  }

  private pump(): void {
    if (!this.isOpen) return;
    for (const { start, bytes } of this.kept) {
      const from = Math.max(0, this.sent - start);
      if (from >= bytes.length) continue;
      const payload = bytes.slice(from);
      if (payload.length > this.credit) return;
      const samples = (start + from) / BYTES_A_SAMPLE;
      const frame = {
        kind: MediaKind.microphone,
        flags: 0,
        stream: this.stream,
        sequence: this.sequence,
        // The count of samples by their rate: a sum of rounded chunks would drift.
        ptsUs: BigInt(Math.round((samples / this.rate) * 1e6)),
        payload,
      };
      if (!this.line.sendMedia(encodeMedia(frame))) return;
      this.sequence += 1;
      this.sent += payload.length;
      this.credit -= payload.length;
    }
    if (this.isEnded && !this.isClosing) {
      this.isClosing = true;
      this.line.send({ type: "stream.close", stream: this.stream });
    }
  }

  /** Let go of what the server holds. */
  private forget(received: number): void {
    const held = this.kept.findIndex(({ start, bytes }) => start + bytes.length > received);
    const gone = this.kept.splice(0, held < 0 ? this.kept.length : held);
    for (const { bytes } of gone) this.keptBytes -= bytes.length;
  }
}
