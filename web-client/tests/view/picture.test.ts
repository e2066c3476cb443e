import { describe, expect, test } from "vitest";
import { wanted } from "../../src/view/picture";

const levels = (...sides: number[]) =>
  sides.map((level) => ({ level, width: 1, height: 1, media_type: "image/jpeg" }));
const sidesOf = (list: { level: number }[]): number[] => list.map(({ level }) => level);

describe("which levels are fetched", () => {
  test("a late comer gets the smallest at once and the full one, not all between", () => {
    expect(sidesOf(wanted(levels(256, 16, 0, 1024, 64), null))).toEqual([16, 0]);
  });

  test("level 0 is the sharpest, whatever its number", () => {
    expect(sidesOf(wanted(levels(16, 0), 1024))).toEqual([0]);
    expect(sidesOf(wanted(levels(16, 64, 256, 1024), 0))).toEqual([]);
  });

  test("nothing coarser than what is shown is fetched", () => {
    expect(sidesOf(wanted(levels(16, 64), 64))).toEqual([]);
  });
});
