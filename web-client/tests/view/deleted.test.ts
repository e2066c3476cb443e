import { expect, test } from "vitest";
import { DeletedMarks, isUndo } from "../../src/view/deleted";
import { lifetimeMs } from "../../src/view/toasts";

const plain = { ctrlKey: false, metaKey: false, shiftKey: false, altKey: false };

test("the marks come back last deleted first, each once", () => {
  const deleted = new DeletedMarks();
  for (const id of ["a", "b", "a"]) deleted.add(id);
  const take = (): string | null => deleted.takeLast(() => false);
  expect([take(), take(), take()]).toEqual(["a", "b", null]);
});

test("a mark that somebody brought back already is passed over", () => {
  const deleted = new DeletedMarks();
  for (const id of ["a", "b", "c"]) deleted.add(id);
  deleted.remove("c");
  expect(deleted.takeLast((id) => id === "b")).toBe("a");
});

test("Ctrl+Z and Cmd+Z undo, and no other keys", () => {
  expect(isUndo({ ...plain, key: "z", ctrlKey: true })).toBe(true);
  expect(isUndo({ ...plain, key: "Z", metaKey: true })).toBe(true);
  expect(isUndo({ ...plain, key: "z" })).toBe(false);
  expect(isUndo({ ...plain, key: "Z", ctrlKey: true, shiftKey: true })).toBe(false);
});

test("a note that offers something to do stays 15 s, a mere one shorter", () => {
  const action = { name: "Undo", act: () => undefined };
  expect(lifetimeMs({ text: "Mark deleted.", action })).toBe(15_000);
  expect(lifetimeMs({ text: "Failed.", isError: true })).toBe(15_000);
  expect(lifetimeMs({ text: "Link copied." })).toBeLessThan(15_000);
});
