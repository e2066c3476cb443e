import { beforeEach, describe, expect, test } from "vitest";
import { Memory, newId, takeToken } from "../src/identity";
import type { Act } from "../src/protocol/outbox";

/** A browser's storage with room for so many characters. */
class SmallStorage {
  private items = new Map<string, string>();
  constructor(private readonly limit = Infinity) {}
  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    if (value.length > this.limit) throw new DOMException("full", "QuotaExceededError");
    this.items.set(key, value);
  }
  removeItem(key: string): void {
    this.items.delete(key);
  }
}

const memoryOf = (storage: SmallStorage): Memory => new Memory(storage as unknown as Storage);
const ask: Act = { type: "ask", turn: "t1", text: "Why?" };

let storage: SmallStorage;
let memory: Memory;

beforeEach(() => {
  storage = new SmallStorage();
  memory = memoryOf(storage);
});

describe("a reload in the same tab", () => {
  test("comes back as the same session, to the same seat, with what was not sent", () => {
    const session = memory.session();
    memory.keepSeat({ name: "Mei", department: "Lab", room: "r" });
    memory.keepActs("r", [ask]);
    const again = memoryOf(storage);
    expect(again.session()).toBe(session);
    expect(again.seat()).toEqual({ name: "Mei", department: "Lab", room: "r" });
    expect(again.acts("r")).toEqual([ask]);
    expect(again.acts("another")).toEqual([]);
  });

  test("after leaving is somebody else, and sends nothing of the one before", () => {
    const session = memory.session();
    memory.keepSeat({ name: "Mei", department: "", room: "r" });
    memory.keepToken("secret");
    memory.keepActs("r", [ask]);
    memory.leave("r");
    expect(memory.seat()).toBeNull();
    expect(memory.token()).toBeNull();
    expect(memory.acts("r")).toEqual([]);
    expect(memory.session()).not.toBe(session);
  });

  test("survives what another version left behind", () => {
    storage.setItem("consilium.seat", "{not json");
    expect(memory.seat()).toBeNull();
  });
});

test("storage that is full is told, not thrown", () => {
  const small = memoryOf(new SmallStorage(10));
  expect(small.keepActs("r", [ask])).toBe(false);
});

test("a notice is told once, whatever is reloaded, and again to the next person", () => {
  const storage = new SmallStorage(1_000);
  expect(memoryOf(storage).isNews("open")).toBe(true);
  expect(memoryOf(storage).isNews("small model")).toBe(true);
  expect(memoryOf(storage).isNews("open")).toBe(false);
  memoryOf(storage).leave("r");
  expect(memoryOf(storage).isNews("open")).toBe(true);
});

test("the picture looked at last is known after a reload, in its own room only", () => {
  const storage = new SmallStorage(1_000);
  memoryOf(storage).keepPicture("r", "a1");
  expect(memoryOf(storage).picture("r")).toBe("a1");
  expect(memoryOf(storage).picture("other")).toBeNull();
});

test("an id has 128 random bits and fits the protocol's pattern", () => {
  const ids = new Set(Array.from({ length: 1_000 }, newId));
  expect(ids.size).toBe(1_000);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
});

test("a token is taken out of the address, and nothing else of it", () => {
  let shown = "";
  const history = {
    state: null,
    replaceState: (_: unknown, __: string, url: string) => (shown = url),
  };
  const location = { hash: "#token=a.b.c", pathname: "/", search: "?room=r" };
  expect(takeToken(location as Location, history as unknown as History)).toBe("a.b.c");
  expect(shown).toBe("/?room=r");
  expect(
    takeToken({ ...location, hash: "" } as Location, history as unknown as History),
  ).toBeNull();
});
