import { beforeEach, describe, expect, test, vi } from "vitest";
import { decodeMedia } from "../src/protocol/codec";
import type { AnyClientMessage, StreamOpen } from "../src/protocol/types.gen";
import { Uploads } from "../src/upload";

const KIB = 1024;

function file(size: number, name = "sheet.png"): File {
  return new File([Uint8Array.from({ length: size }, (_, i) => i % 251)], name, {
    type: "image/png",
  });
}

/** What the server would have, and a line that can be cut. */
class Line {
  messages: AnyClientMessage[] = [];
  chunks: { stream: number; sequence: number; payload: Uint8Array }[] = [];
  isUp = true;

  send(...messages: AnyClientMessage[]): boolean {
    if (this.isUp) this.messages.push(...messages);
    return this.isUp;
  }
  sendMedia(frame: Uint8Array<ArrayBuffer>): boolean {
    if (this.isUp) this.chunks.push(decodeMedia(frame));
    return this.isUp;
  }
  opens(): StreamOpen[] {
    return this.messages.filter((message) => message.type === "stream.open");
  }
  bytesOf(stream: number): Buffer {
    return Buffer.concat(this.chunks.filter((c) => c.stream === stream).map((c) => c.payload));
  }
}

let line: Line;
let uploads: Uploads;
const failures: string[] = [];
const named: string[] = [];

beforeEach(() => {
  failures.length = named.length = 0;
  line = new Line();
  uploads = new Uploads(
    line,
    {
      uploadsChanged: () => undefined,
      uploadNamed: (asset) => named.push(asset),
      uploadFailed: (name, _asset, code) => failures.push(`${name} ${code}`),
    },
    (bytes) => crypto.subtle.digest("SHA-256", bytes),
  );
  uploads.connected(2, 100 * 1024 * KIB);
});

async function opened(count: number): Promise<StreamOpen> {
  await vi.waitFor(() => expect(line.opens()).toHaveLength(count));
  return line.opens().at(-1)!;
}

const grant = (stream: number, credit: number, received = 0): void =>
  uploads.receive({ type: "stream.credit", stream, credit, received });
const open = (stream: number, credit: number, offset = 0, asset = "as-1"): void =>
  uploads.receive({ type: "stream.opened", stream, asset, offset, credit });
const closes = (): AnyClientMessage[] =>
  line.messages.filter(({ type }) => type === "stream.close");

describe("one file", () => {
  test("is announced with its size, type and SHA-256", async () => {
    uploads.add(file(3));
    const { sha256, ...rest } = await opened(1);
    expect(rest).toEqual({
      type: "stream.open",
      stream: 1,
      name: "sheet.png",
      media_type: "image/png",
      size: 3,
    });
    expect(sha256).toBe("ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc");
  });

  test("never takes more than its credit, in chunks of at most 64 KiB, numbered from 0", async () => {
    uploads.add(file(200 * KIB));
    const { stream } = await opened(1);
    open(stream, 100 * KIB);
    await vi.waitFor(() => expect(line.chunks).toHaveLength(2));
    expect(line.chunks.map((c) => c.payload.length)).toEqual([64 * KIB, 36 * KIB]);
    expect(closes()).toEqual([]);
    grant(stream, 60 * KIB);
    grant(stream, 60 * KIB);
    await vi.waitFor(() => expect(closes()).toHaveLength(1));
    expect(line.chunks.map((c) => c.sequence)).toEqual(line.chunks.map((_, i) => i));
    expect(line.bytesOf(stream)).toEqual(Buffer.from(await file(200 * KIB).arrayBuffer()));
  });

  test("that is empty is closed without a chunk", async () => {
    uploads.add(file(0));
    const { stream } = await opened(1);
    open(stream, 64 * KIB);
    await vi.waitFor(() => expect(closes()).toHaveLength(1));
    expect(line.chunks).toEqual([]);
  });

  test("over the server's limit is not sent", async () => {
    uploads.connected(2, 10);
    uploads.add(file(11));
    await vi.waitFor(() => expect(failures).toEqual(["sheet.png media_too_big"]));
    expect(line.messages).toEqual([]);
  });
});

describe("a broken connection", () => {
  test("goes on at the byte that the server has, under a new stream", async () => {
    uploads.add(file(300 * KIB));
    const first = await opened(1);
    open(first.stream, 128 * KIB);
    await vi.waitFor(() => expect(line.chunks).toHaveLength(2));
    line.isUp = false;
    uploads.disconnected();
    line.isUp = true;
    uploads.connected(2, 100 * 1024 * KIB);
    const second = await opened(2);
    expect(second).toMatchObject({ asset: "as-1", size: 300 * KIB });
    expect(second.stream).not.toBe(first.stream);
    open(second.stream, 1024 * KIB, 70_000);
    await vi.waitFor(() => expect(closes()).toHaveLength(1));
    const whole = Buffer.from(await file(300 * KIB).arrayBuffer());
    expect(line.bytesOf(second.stream)).toEqual(whole.subarray(70_000));
    expect(line.chunks.find((c) => c.stream === second.stream)?.sequence).toBe(0);
    expect(named).toEqual(["as-1"]);
  });

  test("that comes while a chunk is read sends nothing into the new stream out of order", async () => {
    uploads.add(file(300 * KIB));
    const first = await opened(1);
    open(first.stream, 1024 * KIB);
    uploads.disconnected();
    uploads.connected(2, 100 * 1024 * KIB);
    const second = await opened(2);
    open(second.stream, 1024 * KIB);
    await vi.waitFor(() => expect(closes()).toHaveLength(1));
    expect(line.bytesOf(second.stream).length).toBe(300 * KIB);
  });

  test("starts over when the server has forgotten the half", async () => {
    uploads.add(file(10));
    open((await opened(1)).stream, 4);
    uploads.disconnected();
    uploads.connected(2, 100);
    const { stream } = await opened(2);
    uploads.receive({ type: "stream.closed", stream, code: "upload_abandoned", message: "" });
    expect((await opened(3)).asset).toBeUndefined();
    expect(failures).toEqual([]);
  });

  test("sends nothing again of what the log has complete", async () => {
    uploads.add(file(10));
    open((await opened(1)).stream, 100);
    await vi.waitFor(() => expect(closes()).toHaveLength(1));
    uploads.disconnected();
    uploads.committed((asset) => asset === "as-1");
    uploads.connected(2, 100);
    expect(uploads.list()).toEqual([]);
    expect(line.opens()).toHaveLength(1);
  });
});

describe("several files", () => {
  test("no more streams are open than the server takes", async () => {
    for (let i = 0; i < 5; i++) uploads.add(file(10, `${i}.png`));
    await opened(2);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(line.opens()).toHaveLength(2);
    uploads.receive({ type: "stream.closed", stream: line.opens()[0]!.stream, asset: "as-1" });
    await opened(3);
  });

  test("one that fails is told by its code, and the others go on", async () => {
    uploads.add(file(10, "a.png"));
    uploads.add(file(10, "b.png"));
    await opened(2);
    const bad = line.opens().find(({ name }) => name === "a.png")!.stream;
    uploads.receive({ type: "stream.closed", stream: bad, code: "hash_mismatch", message: "" });
    expect(failures).toEqual(["a.png hash_mismatch"]);
    expect(uploads.list().map(({ name }) => name)).toEqual(["b.png"]);
  });

  test("an error that names no stream of ours is somebody else's", () => {
    const error = { type: "error", code: "stream_unknown", message: "", ref: "9" } as const;
    expect(uploads.receiveError(error)).toBe(false);
  });
});
