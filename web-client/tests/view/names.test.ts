import { describe, expect, test } from "vitest";
import { placeOfName } from "../../src/view/names";

const LINE_PX = 18;
const SHORT_PX = 34;
const windows = [
  { width: 390, height: 286 },
  { width: 993.6, height: 708 },
];

describe("W88: the name of a mark is never cut off by an edge of the window", () => {
  const steps = [-0.5, -0.1, 0, 0.02, 0.5, 0.9, 0.97, 0.995];
  const sizes = [0.004, 0.05, 0.3, 1, 2];
  test.each(windows)("in a window of $width by $height", (window) => {
    for (const left of steps) {
      for (const top of steps) {
        for (const wide of sizes) {
          for (const high of sizes) {
            const box = {
              x: left * window.width,
              y: top * window.height,
              width: wide * window.width,
              height: high * window.height,
            };
            if (box.x + box.width <= 0 || box.y + box.height <= 0) continue;
            for (const isSelected of [false, true]) {
              const at = placeOfName(box, window, isSelected);
              const width = at.isShort ? SHORT_PX : at.maxWidth;
              expect(at.x).toBeGreaterThanOrEqual(0);
              expect(at.y).toBeGreaterThanOrEqual(0);
              expect(at.x + width).toBeLessThanOrEqual(window.width + 1e-9);
              expect(at.y + LINE_PX).toBeLessThanOrEqual(window.height + 1e-9);
            }
          }
        }
      }
    }
  });

  test("a mark that fills the window has its name inside, not below the edge", () => {
    const window = { width: 993.6, height: 708 };
    const at = placeOfName({ x: 38, y: 12, width: 917, height: 684 }, window, false);
    expect(at).toMatchObject({ x: 38, y: 15, isShort: false });
  });

  test("the name of a mark out of sight stays out of sight", () => {
    const window = { width: 400, height: 300 };
    const at = placeOfName({ x: 100, y: 900, width: 50, height: 50 }, window, false);
    expect(at.y).toBeGreaterThan(300);
  });

  test("a tall box has its name above, a flat one beside it", () => {
    const window = { width: 900, height: 700 };
    expect(placeOfName({ x: 100, y: 200, width: 50, height: 60 }, window, false)).toMatchObject({ x: 100, y: 179 });
    expect(placeOfName({ x: 100, y: 200, width: 300, height: 20 }, window, false)).toMatchObject({ x: 404, y: 201 });
  });
});
