import { describe, expect, test } from "vitest";
import { fit, pan, reveal, toImage, toWindow, viewBox, zoom } from "../../src/view/viewport";

const image = { width: 4032, height: 3024 };
const windows = [
  { width: 390, height: 320 },
  { width: 960.5, height: 707.25 },
  { width: 1440, height: 900 },
];

describe("W71: coordinates belong to the picture", () => {
  // A page at ratio r has windows of 1/r the CSS pixels; CSS pixels are all that is computed with.
  const ratios = [0.75, 1, 1.25, 1.5, 2, 3];
  test.each(ratios)("a place drawn at pixel ratio %f is the same place at every zoom", (ratio) => {
    for (const css of windows) {
      const window = { width: css.width / ratio, height: css.height / ratio };
      let viewport = fit(window, image);
      const drawn = { x: 1234.5, y: 678.25 };
      for (const factor of [1, 1.7, 3, 0.4, 11, 0.05, 2.5]) {
        const anchor = { x: window.width * 0.3, y: window.height * 0.8 };
        viewport = zoom(viewport, anchor, factor, window, image);
        viewport = pan(viewport, { x: 13.5, y: -7.25 }, window, image);
        const back = toImage(viewport, toWindow(viewport, drawn));
        expect(Math.abs(back.x - drawn.x)).toBeLessThan(1e-6);
        expect(Math.abs(back.y - drawn.y)).toBeLessThan(1e-6);
      }
    }
  });

  test("the overlay's user units are image pixels", () => {
    const window = { width: 800, height: 600 };
    const viewport = { scale: 2, x: -100, y: 50 };
    expect(viewBox(viewport, window)).toBe("50 -25 400 300");
  });
});

describe("moving about", () => {
  const window = { width: 800, height: 600 };

  test.each(windows)("the fitted picture lies whole and centred in the window", (size) => {
    const viewport = fit(size, image);
    const corner = toWindow(viewport, { x: image.width, y: image.height });
    expect(viewport.x).toBeGreaterThanOrEqual(0);
    expect(viewport.y).toBeGreaterThanOrEqual(0);
    expect(corner.x + viewport.x).toBeCloseTo(size.width, 6);
    expect(corner.y + viewport.y).toBeCloseTo(size.height, 6);
  });

  test("zooming holds what is under the pointer", () => {
    const before = fit(window, image);
    const anchor = { x: 300, y: 250 };
    const after = zoom(before, anchor, 3, window, image);
    expect(toImage(after, anchor).x).toBeCloseTo(toImage(before, anchor).x, 6);
    expect(toImage(after, anchor).y).toBeCloseTo(toImage(before, anchor).y, 6);
  });

  test("the picture cannot be lost outside the window", () => {
    const viewport = pan(fit(window, image), { x: 1e6, y: -1e6 }, window, image);
    expect(viewport.x).toBeLessThan(window.width);
    expect(viewport.y + image.height * viewport.scale).toBeGreaterThan(0);
  });

  test("a revealed box is in the middle and inside the window", () => {
    const box = { x: 3000, y: 200, width: 300, height: 40 };
    const viewport = reveal(fit(window, image), box, window, image);
    const middle = toWindow(viewport, { x: 3150, y: 220 });
    expect(middle.x).toBeCloseTo(400, 6);
    expect(middle.y).toBeCloseTo(300, 6);
    expect(box.width * viewport.scale).toBeLessThanOrEqual(window.width);
  });
});
