/**
 * Files on their way to the room: 64 KiB chunks within the server's credit, resumed where the
 * server stopped after a broken connection.
 *
 *     queued ─► opening ─► sending ─► checking ─► (done: leaves the list)
 *                  ▲          │ connection lost
 *                  └──────────┘
 */

import { MediaKind, encodeMedia } from "./protocol/codec";
import {
  ERROR_MEANINGS,
  MAX_PAYLOAD_BYTES,
  type AnyClientMessage,
  type Error as ErrorMessage,
  type ErrorCode,
  type StreamClosed,
  type StreamCredit,
  type StreamOpen,
  type StreamOpened,
} from "./protocol/types.gen";

/** Larger files are not hashed beforehand: the whole file would have to be held in memory. */
export const MAX_HASHED_BYTES = 256 * 1024 * 1024;
const MAX_QUEUED = 100;
const MAX_RETRIES = 5;

export interface Line {
  send(...messages: AnyClientMessage[]): boolean;
  sendMedia(frame: Uint8Array<ArrayBuffer>): boolean;
}

export interface UploadNews {
  uploadsChanged(): void;
  /** The server knows the file under this id from now on. */
  uploadNamed(asset: string): void;
  /** `asset` is null when the server never knew the file. */
  uploadFailed(name: string, asset: string | null, code: ErrorCode, message: string): void;
}

export interface Upload {
  readonly name: string;
  readonly size: number;
  readonly stage: "queued" | "opening" | "sending" | "checking";
  readonly asset: string | null;
  /** Bytes that the server said it holds. */
  readonly received: number;
}

interface Transfer extends Upload {
  readonly file: File;
  sha256: string | null | undefined;
  stream: number;
  stage: Upload["stage"];
  asset: string | null;
  received: number;
  offset: number;
  credit: number;
  sequence: number;
  retries: number;
  pumping: boolean;
}

export class Uploads {
  private transfers: Transfer[] = [];
  private nextStream = 1;
  private live = false;
  private maxStreams = 1;
  private maxBytes = Number.MAX_SAFE_INTEGER;

  constructor(
    private readonly line: Line,
    private readonly news: UploadNews,
    private readonly digest: ((bytes: ArrayBuffer) => Promise<ArrayBuffer>) | null,
  ) {}

  list(): readonly Upload[] {
    return this.transfers;
  }

  /** Put a file into the queue; it starts when there is a connection and a free stream. */
  add(file: File): void {
    if (this.transfers.length >= MAX_QUEUED) {
      const message = `${MAX_QUEUED} files wait already`;
      this.news.uploadFailed(file.name, null, "stream_limit", message);
      return;
    }
    this.transfers.push({
      file,
      name: file.name,
      size: file.size,
      sha256: undefined,
      stream: 0,
      stage: "queued",
      asset: null,
      received: 0,
      offset: 0,
      credit: 0,
      sequence: 0,
      retries: 0,
      pumping: false,
    });
    this.startQueued();
  }

  /** A connection is there: go on with everything, from where the server stopped. */
  connected(maxStreams: number, maxBytes: number): void {
    this.live = true;
    this.maxStreams = maxStreams;
    this.maxBytes = maxBytes;
    this.startQueued();
  }

  /** The connection is gone: every stream has to be opened again. */
  disconnected(): void {
    this.live = false;
    for (const transfer of this.transfers) {
      transfer.stage = "queued";
      transfer.stream = 0;
    }
    this.news.uploadsChanged();
  }

  /** The room's log has these assets complete: nothing of them is to be sent again. */
  committed(isCommitted: (asset: string) => boolean): void {
    for (const transfer of this.transfers) {
      if (transfer.asset !== null && isCommitted(transfer.asset)) this.remove(transfer);
    }
  }

  receive(message: StreamOpened | StreamCredit | StreamClosed): void {
    const transfer = this.transfers.find(({ stream }) => stream === message.stream);
    if (transfer === undefined) return;
    switch (message.type) {
      case "stream.opened":
        this.opened(transfer, message);
        return;
      case "stream.credit":
        transfer.credit += message.credit;
        transfer.received = message.received;
        this.news.uploadsChanged();
        void this.pump(transfer);
        return;
      case "stream.closed":
        if (message.code != null) this.failed(transfer, message.code, message.message ?? "");
        else this.remove(transfer);
    }
  }

  /** Take an error that names one of the streams; false when it concerns something else. */
  receiveError(error: ErrorMessage): boolean {
    const transfer = this.transfers.find(
      ({ stream }) => stream !== 0 && String(stream) === error.ref,
    );
    if (transfer === undefined) return false;
    this.failed(transfer, error.code, error.message);
    return true;
  }

  private startQueued(): void {
    this.news.uploadsChanged();
    if (!this.live) return;
    const open = this.transfers.filter(({ stage }) => stage !== "queued").length;
    const queued = this.transfers.filter(({ stage }) => stage === "queued");
    for (const transfer of queued.slice(0, Math.max(0, this.maxStreams - open))) {
      transfer.stage = "opening";
      void this.open(transfer);
    }
  }

  private async open(transfer: Transfer): Promise<void> {
    if (transfer.size > this.maxBytes) {
      const message = `The file has ${transfer.size} bytes; ${this.maxBytes} are the limit.`;
      this.failed(transfer, "media_too_big", message);
      return;
    }
    try {
      transfer.sha256 ??= await this.hash(transfer.file);
    } catch {
      this.unreadable(transfer);
      return;
    }
    // The connection may have come and gone while the file was hashed.
    if (transfer.stage !== "opening" || transfer.stream !== 0) return;
    transfer.stream = this.nextStream++;
    const open: StreamOpen = {
      type: "stream.open",
      stream: transfer.stream,
      name: transfer.name.slice(0, 255),
      media_type: transfer.file.type.slice(0, 100),
      size: transfer.size,
    };
    if (transfer.sha256 !== null) open.sha256 = transfer.sha256;
    if (transfer.asset !== null) open.asset = transfer.asset;
    this.line.send(open);
  }

  private opened(transfer: Transfer, message: StreamOpened): void {
    if (transfer.asset !== message.asset) {
      transfer.asset = message.asset;
      this.news.uploadNamed(message.asset);
    }
    transfer.offset = message.offset;
    transfer.received = message.offset;
    transfer.credit = message.credit;
    transfer.sequence = 0;
    transfer.stage = "sending";
    this.news.uploadsChanged();
    void this.pump(transfer);
  }

  /** Send as much as the credit allows; more credit calls it again. */
  private async pump(transfer: Transfer): Promise<void> {
    if (transfer.pumping) return;
    transfer.pumping = true;
    const { stream } = transfer;
    try {
      const mayGoOn = (): boolean => transfer.stage === "sending" && transfer.stream === stream;
      while (mayGoOn() && transfer.offset < transfer.size && transfer.credit > 0) {
        const length = Math.min(
          MAX_PAYLOAD_BYTES,
          transfer.credit,
          transfer.size - transfer.offset,
        );
        const chunk = transfer.file.slice(transfer.offset, transfer.offset + length);
        const payload = new Uint8Array(await chunk.arrayBuffer());
        if (!mayGoOn()) break;
        const frame = { kind: MediaKind.file, flags: 0, stream, ptsUs: 0n, payload };
        if (!this.line.sendMedia(encodeMedia({ ...frame, sequence: transfer.sequence }))) break;
        transfer.sequence += 1;
        transfer.offset += length;
        transfer.credit -= length;
      }
      if (mayGoOn() && transfer.offset >= transfer.size) {
        transfer.stage = "checking";
        this.line.send({ type: "stream.close", stream });
        this.news.uploadsChanged();
      }
    } catch {
      this.unreadable(transfer);
    } finally {
      transfer.pumping = false;
    }
    // A reconnect may have reopened the upload under a new stream while a chunk was being read.
    if (transfer.stream !== stream && transfer.stage === "sending") void this.pump(transfer);
  }

  private async hash(file: File): Promise<string | null> {
    if (this.digest === null || file.size > MAX_HASHED_BYTES) return null;
    const digest = new Uint8Array(await this.digest(await file.arrayBuffer()));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  private failed(transfer: Transfer, code: ErrorCode, message: string): void {
    // The server forgot the half that it had: start from the first byte under a new asset.
    const forgotten =
      transfer.asset !== null && (code === "asset_unknown" || code === "upload_abandoned");
    const passing =
      ERROR_MEANINGS[code]?.retry || code === "stream_exists" || code === "stream_gap";
    if ((forgotten || passing) && transfer.retries < MAX_RETRIES) {
      transfer.retries += 1;
      if (forgotten) transfer.asset = null;
      transfer.stage = "queued";
      transfer.stream = 0;
      this.startQueued();
      return;
    }
    this.remove(transfer);
    this.news.uploadFailed(transfer.name, transfer.asset, code, message);
  }

  private unreadable(transfer: Transfer): void {
    if (transfer.stream !== 0) this.line.send({ type: "stream.abort", stream: transfer.stream });
    this.remove(transfer);
    const message = "The browser cannot read this file; it may have been moved or changed.";
    this.news.uploadFailed(transfer.name, transfer.asset, "upload_abandoned", message);
  }

  private remove(transfer: Transfer): void {
    this.transfers = this.transfers.filter((other) => other !== transfer);
    transfer.stage = "checking";
    transfer.stream = 0;
    this.startQueued();
  }
}
