/** A camera's stills on their way to the room: the newest is sent, one that waits is passed over. */

import { MediaKind, encodeMedia } from "./protocol/codec";
import type { ErrorCode, StreamClosed, StreamCredit, StreamOpened } from "./protocol/types.gen";
import type { Line } from "./upload";

/** `Flags.LAST_OF_STILL` of the binary header. */
const LAST_OF_STILL = 1;
const MAX_PAYLOAD_BYTES = 64 * 1024;
/** Uploads count their streams from 1, microphones from a million. */
const FIRST_STREAM = 2_000_000;

export interface StillsNews {
  /** The camera is over; `code` says why when the server ended it. */
  stillsEnded(code: ErrorCode | null, message: string): void;
}

let nextStream = FIRST_STREAM;

export class Stills {
  asset: string | null = null;
  /** Stills that a newer one took the place of before they could be sent. */
  passedOver = 0;
  private stream = 0;
  private isOpen = false;
  private isEnded = false;
  private isClosing = false;
  private waiting: { jpeg: Uint8Array<ArrayBuffer>; ptsUs: bigint } | null = null;
  private credit = 0;
  private sequence = 0;

  constructor(
    private readonly line: Line,
    private readonly news: StillsNews,
    private readonly name: string,
  ) {}

  /** A connection is there: begin, or go on in the same asset. */
  connected(): void {
    this.stream = nextStream++;
    this.isOpen = this.isClosing = false;
    this.sequence = 0;
    this.line.send({
      type: "stream.open",
      stream: this.stream,
      kind: "camera",
      name: this.name.slice(0, 255),
      media_type: "image/jpeg",
      ...(this.asset === null ? {} : { asset: this.asset }),
    });
  }

  disconnected(): void {
    this.isOpen = false;
    this.stream = 0;
  }

  /** Take a still that was taken at `ptsUs`. */
  take(jpeg: Uint8Array<ArrayBuffer>, ptsUs: bigint): void {
    if (this.isEnded) return;
    if (this.waiting !== null) this.passedOver += 1;
    this.waiting = { jpeg, ptsUs };
    this.pump();
  }

  /** The camera is off. */
  end(): void {
    this.isEnded = true;
    this.waiting = null;
    this.pump();
  }

  /** Take an answer of the server; false when it is about another stream. */
  receive(message: StreamOpened | StreamCredit | StreamClosed): boolean {
    if (this.stream === 0 || message.stream !== this.stream) return false;
    switch (message.type) {
      case "stream.opened":
        this.asset = message.asset;
        this.credit = message.credit;
        this.isOpen = true;
        this.pump();
        break;
      case "stream.credit":
        this.credit += message.credit;
        this.pump();
        break;
      case "stream.closed":
        this.stream = 0;
        this.isOpen = false;
        this.isEnded = true;
        this.news.stillsEnded(message.code ?? null, message.message ?? "");
    }
    return true;
  }

  private pump(): void {
    if (!this.isOpen) return;
    const { waiting } = this;
    // A still goes whole or not at all: half of one is of no use to anybody.
    if (waiting !== null && waiting.jpeg.length <= this.credit) {
      this.waiting = null;
      this.send(waiting.jpeg, waiting.ptsUs);
    }
    if (this.isEnded && !this.isClosing) {
      this.isClosing = true;
      this.line.send({ type: "stream.close", stream: this.stream });
    }
  }

  private send(jpeg: Uint8Array<ArrayBuffer>, ptsUs: bigint): void {
    for (let from = 0; from < jpeg.length; from += MAX_PAYLOAD_BYTES) {
      const payload = jpeg.slice(from, from + MAX_PAYLOAD_BYTES);
      const isLast = from + payload.length === jpeg.length;
      const frame = {
        kind: MediaKind.camera,
        flags: isLast ? LAST_OF_STILL : 0,
        stream: this.stream,
        sequence: this.sequence,
        ptsUs,
        payload,
      };
      if (!this.line.sendMedia(encodeMedia(frame))) return;
      this.sequence += 1;
      this.credit -= payload.length;
    }
  }
}
