import { describe, expect, test } from "vitest";
import {
  fullRange,
  paint,
  readFrame,
  shadesOf,
  usable,
  type Gray,
  type GrayFrame,
  type Samples,
} from "../../src/view/voi";
import { vectors } from "../vectors";

interface Case {
  name: string;
  gray: Gray;
  sample: "uint8" | "uint16" | "int16";
  samples: number[];
  shades: number[];
}

const TYPES = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array };
const GRAY: Gray = {
  slope: 1,
  intercept: 0,
  function: "LINEAR",
  invert: false,
  windows: [{ center: 40, width: 400 }],
  lut: null,
};

function painted(gray: Gray, samples: Samples): number[] {
  const pixels = new Uint8ClampedArray(4 * samples.length);
  paint(samples, shadesOf(gray, samples, null), pixels);
  const shown: number[] = [];
  for (let at = 0; at < pixels.length; at += 4) {
    expect([pixels[at + 1], pixels[at + 2], pixels[at + 3]]).toEqual([pixels[at], pixels[at], 255]);
    shown.push(pixels[at]!);
  }
  return shown;
}

function encoded(header: object, samples: Samples): ArrayBuffer {
  let text = JSON.stringify(header);
  text = text.padEnd(Math.ceil((text.length + 4) / 8) * 8 - 4);
  const bytes = new Uint8Array(4 + text.length + samples.byteLength);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(new TextEncoder().encode(text), 4);
  bytes.set(new Uint8Array(samples.buffer), 4 + text.length);
  return bytes.buffer;
}

describe("gray on the screen (W75, W77, W78)", () => {
  test.each(vectors<Case[]>("gray"))("as pydicom makes it: $name", (one) => {
    expect(painted(one.gray, TYPES[one.sample].from(one.samples))).toEqual(one.shades);
  });

  test("a window that a person chose replaces the table of the file", () => {
    const lut = { first: 0, bits: 8, entries: [7, 7, 7] };
    const samples = new Uint8Array([0, 128, 255]);
    const shades = shadesOf({ ...GRAY, lut }, samples, { center: 128, width: 256 });
    expect([shades[0], shades[128], shades[255]]).toEqual([0, 128, 255]);
  });

  test("the full range runs from black to white, whatever the slope", () => {
    for (const slope of [2, -2]) {
      const samples = new Int16Array([-100, 0, 900]);
      const frame: GrayFrame = { ...GRAY, slope, intercept: 5, width: 3, height: 1, samples };
      const window = fullRange(frame);
      const ends = painted({ ...frame, windows: [window] }, samples);
      expect([ends[0], ends[2]]).toEqual(slope > 0 ? [0, 255] : [255, 0]);
    }
  });

  test("no width that the formula has no meaning for", () => {
    expect(usable({ center: 1, width: -4 }, "LINEAR").width).toBe(1);
    expect(usable({ center: 1, width: 0 }, "SIGMOID").width).toBeGreaterThan(0);
    expect(usable({ center: 1, width: 0.5 }, "LINEAR_EXACT").width).toBe(0.5);
  });
});

describe("a frame as it is sent", () => {
  test.each(["uint8", "uint16", "int16"] as const)("with samples of %s", (sample) => {
    const samples = TYPES[sample].from([1, 2, 3, 250, 5, 6]);
    const frame = readFrame(encoded({ ...GRAY, width: 3, height: 2, sample }, samples));
    expect([...frame.samples]).toEqual([...samples]);
    expect(frame.samples).toBeInstanceOf(TYPES[sample]);
    expect([frame.width, frame.height, frame.windows[0]!.center]).toEqual([3, 2, 40]);
  });

  test("that is cut short is no frame", () => {
    const whole = encoded({ ...GRAY, width: 2, height: 2, sample: "int16" }, new Int16Array(4));
    expect(() => readFrame(whole.slice(0, -2))).toThrow();
  });
});
