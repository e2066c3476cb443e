import { describe, expect, test, vi } from "vitest";
import { FrameStore, NotReady } from "../../src/view/framestore";

/** A source whose loads end when the test says so. */
class Frames {
  readonly asked: number[] = [];
  readonly waiting = new Map<number, { give: () => void; fail: (error: Error) => void }>();

  constructor(
    public ready: number,
    readonly bytes = 1,
  ) {}

  load(frame: number): Promise<string> {
    this.asked.push(frame);
    return new Promise((resolve, reject) => {
      this.waiting.set(frame, { give: () => resolve(`frame ${frame}`), fail: reject });
    });
  }

  async give(frame: number): Promise<void> {
    this.waiting.get(frame)!.give();
    await Promise.resolve();
  }
}

function open(ready: number, bytes?: number) {
  const frames = new Frames(ready, bytes);
  const arrived: number[] = [];
  const store = new FrameStore<string>(frames, (frame) => arrived.push(frame), 0);
  return { frames, store, arrived };
}

describe("frames of a series", () => {
  test("the wanted one comes first, then those after it, two at a time", async () => {
    const { frames, store, arrived } = open(30);
    expect(store.want(10)).toBeNull();
    expect(frames.asked).toEqual([10, 11]);
    await frames.give(10);
    await vi.waitFor(() => expect(frames.asked).toEqual([10, 11, 12]));
    expect(arrived).toEqual([10]);
    expect(store.want(10)).toBe("frame 10");
  });

  test("whoever moves on is served before what was to come", async () => {
    const { frames, store } = open(30);
    store.want(0);
    store.want(20);
    await frames.give(1);
    await vi.waitFor(() => expect(frames.asked).toEqual([0, 1, 20]));
  });

  test("nothing is asked for before it is decoded, and then at once", async () => {
    const { frames, store } = open(2);
    store.want(1);
    expect(frames.asked).toEqual([1]);
    frames.ready = 3;
    store.fetchMore();
    expect(frames.asked).toEqual([1, 2]);
  });

  test("a frame that cannot be had now is asked for until it can", async () => {
    const { frames, store, arrived } = open(1);
    store.want(0);
    for (let time = 1; time <= 8; time += 1) {
      frames.waiting.get(0)!.fail(new NotReady());
      await vi.waitFor(() => expect(frames.asked.length).toBe(time + 1));
    }
    await frames.give(0);
    await vi.waitFor(() => expect(arrived).toEqual([0]));
  });

  test("one that fails is given up after five tries, and tried again with new permission", async () => {
    const { frames, store } = open(1);
    store.want(0);
    for (let time = 1; time < 5; time += 1) {
      frames.waiting.get(0)!.fail(new Error("500"));
      await vi.waitFor(() => expect(frames.asked.length).toBe(time + 1));
    }
    frames.waiting.get(0)!.fail(new Error("500"));
    await vi.waitFor(() => {
      store.renew();
      expect(frames.asked.length).toBe(6);
    });
  });

  test("memory is bounded: what was used longest ago goes first, never what is wanted", async () => {
    const { frames, store } = open(3, 128 * 1024 * 1024);
    for (const frame of [0, 1, 2]) {
      store.want(frame);
      await vi.waitFor(() => expect(frames.waiting.has(frame)).toBe(true));
      frames.waiting.get(frame)!.give();
      await vi.waitFor(() => expect(store.want(frame)).toBe(`frame ${frame}`));
    }
    expect(store.want(2)).toBe("frame 2");
    expect(store.want(0)).toBeNull();
  });

  test("after it was closed nothing arrives", async () => {
    const { frames, store, arrived } = open(1);
    store.want(0);
    store.close();
    await frames.give(0);
    expect(arrived).toEqual([]);
    expect(frames.asked).toEqual([0]);
  });
});
