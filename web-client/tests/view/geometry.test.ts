import { describe, expect, test } from "vitest";
import { MAX_POINTS, bounds, cornerOf, drawn, moved, resized } from "../../src/view/geometry";
import type { Shape } from "../../src/protocol/types.gen";

const rectangle = { type: "rectangle", x: 10, y: 20, width: 30, height: 40 } as const;

describe("drawing", () => {
  test.each([
    [
      { x: 10, y: 20 },
      { x: 40, y: 60 },
    ],
    [
      { x: 40, y: 60 },
      { x: 10, y: 20 },
    ],
    [
      { x: 40, y: 20 },
      { x: 10, y: 60 },
    ],
  ])("a rectangle is the same from whichever corner it is drawn", (from, to) => {
    expect(drawn("rectangle", [from, to])).toEqual(rectangle);
  });

  test("a long freehand line keeps its ends and the protocol's limit of points", () => {
    const stroke = Array.from({ length: 23_456 }, (_, i) => ({ x: i, y: i / 2 }));
    const line = drawn("polyline", stroke);
    if (line?.type !== "polyline") throw new Error("no line");
    expect(line.points.length).toBeLessThanOrEqual(MAX_POINTS);
    expect(line.points[0]).toEqual([0, 0]);
    expect(line.points.at(-1)).toEqual([23_455, 11_727.5]);
  });

  test("a stroke of one place is only ever a point", () => {
    expect(drawn("rectangle", [{ x: 1, y: 2 }])).toBeNull();
    expect(drawn("point", [{ x: 1, y: 2 }])).toEqual({ type: "point", x: 1, y: 2 });
  });
});

describe("changing", () => {
  test("a moved shape keeps its size", () => {
    const line: Shape = {
      type: "polygon",
      points: [
        [0, 0],
        [10, 0],
        [5, 8],
      ],
    };
    for (const shape of [rectangle, line]) {
      const before = bounds(shape);
      const after = bounds(moved(shape, { x: -3.5, y: 7 }));
      expect(after).toEqual({ ...before, x: before.x - 3.5, y: before.y + 7 });
    }
  });

  test.each(["nw", "ne", "sw", "se"] as const)(
    "dragging %s leaves the opposite corner",
    (corner) => {
      const opposite = ({ nw: "se", ne: "sw", sw: "ne", se: "nw" } as const)[corner];
      const after = resized(rectangle, corner, { x: 5, y: 6 });
      expect(cornerOf(bounds(after), opposite)).toEqual(cornerOf(rectangle, opposite));
    },
  );

  test("a corner dragged across its opposite turns the shape over", () => {
    expect(resized(rectangle, "se", { x: -50, y: -60 })).toEqual({
      ...rectangle,
      x: -10,
      y: 0,
      width: 20,
      height: 20,
    });
  });
});
