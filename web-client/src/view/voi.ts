/**
 * From a frame's samples to gray on the screen: DICOM PS3.3 C.11.2, the same sums as the server's.
 *
 *     sample ─► value = slope × sample + intercept ─► table or window ─► inverted for MONOCHROME1
 */

export interface Window {
  readonly center: number;
  readonly width: number;
  readonly name?: string;
}

/** A table of the file's own: value `first` and below is its first entry, and so on. */
export interface Lut {
  readonly first: number;
  readonly bits: number;
  readonly entries: readonly number[];
}

export type WindowFunction = "LINEAR" | "LINEAR_EXACT" | "SIGMOID";

export interface Gray {
  readonly slope: number;
  readonly intercept: number;
  readonly function: WindowFunction;
  readonly invert: boolean;
  readonly windows: readonly Window[];
  readonly lut: Lut | null;
}

export type Samples = Uint8Array | Uint16Array | Int16Array;

export interface GrayFrame extends Gray {
  readonly width: number;
  readonly height: number;
  readonly samples: Samples;
}

const SAMPLE_TYPES = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array } as const;

const LENGTH_BYTES = 4;
const WHITE = 255;

/** Read a frame as the server sends it: length of the header, header, samples; little-endian. */
export function readFrame(bytes: ArrayBuffer): GrayFrame {
  const length = new DataView(bytes).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(bytes, LENGTH_BYTES, length));
  const header = JSON.parse(text) as Gray & {
    width: number;
    height: number;
    sample: keyof typeof SAMPLE_TYPES;
  };
  const { sample, ...frame } = header;
  // Every browser runs on little-endian machines, so the bytes are the numbers.
  const count = frame.width * frame.height;
  return { ...frame, samples: new SAMPLE_TYPES[sample](bytes, LENGTH_BYTES + length, count) };
}

/** The gray of every sample that there can be; with a window, the file's table is passed over. */
export function shadesOf(gray: Gray, samples: Samples, window: Window | null): Uint8Array {
  const { least, count } = rangeOf(samples);
  const partOf = window === null && gray.lut !== null ? byLut(gray.lut) : byWindow(gray, window);
  const shades = new Uint8Array(count);
  for (let index = 0; index < count; index += 1) {
    const shade = Math.floor(partOf((index + least) * gray.slope + gray.intercept) * WHITE + 0.5);
    shades[index] = gray.invert ? WHITE - shade : shade;
  }
  return shades;
}

/** Paint a frame as opaque RGBA. */
export function paint(samples: Samples, shades: Uint8Array, into: Uint8ClampedArray): void {
  const { least } = rangeOf(samples);
  const pixels = new Uint32Array(into.buffer, into.byteOffset, samples.length);
  for (let index = 0; index < samples.length; index += 1) {
    pixels[index] = (shades[samples[index]! - least]! * 0x010101) | 0xff000000;
  }
}

/** The window that shows the smallest value of a frame as black and the greatest as white. */
export function fullRange(frame: GrayFrame): Window {
  let low = Infinity;
  let high = -Infinity;
  for (const sample of frame.samples) {
    if (sample < low) low = sample;
    if (sample > high) high = sample;
  }
  const [a, b] = [low, high].map((sample) => sample * frame.slope + frame.intercept);
  const [least, most] = [Math.min(a!, b!), Math.max(a!, b!)];
  if (frame.function === "LINEAR") {
    return { center: (least + most) / 2 + 0.5, width: most - least + 1 };
  }
  return { center: (least + most) / 2, width: most - least || 1 };
}

/** The nearest window that the formula has a meaning for. */
export function usable({ center, width }: Window, kind: WindowFunction): Window {
  return { center, width: Math.max(width, kind === "LINEAR" ? 1 : 1e-6) };
}

function rangeOf(samples: Samples): { least: number; count: number } {
  if (samples instanceof Uint8Array) return { least: 0, count: 256 };
  return { least: samples instanceof Int16Array ? -32_768 : 0, count: 65_536 };
}

function byWindow(gray: Gray, chosen: Window | null): (value: number) => number {
  const window = chosen ?? gray.windows[0] ?? { center: 128, width: 256 };
  if (gray.function === "SIGMOID") {
    const { center, width } = window;
    return (value) => 1 / (1 + Math.exp((-4 * (value - center)) / width));
  }
  const isExact = gray.function === "LINEAR_EXACT";
  const center = isExact ? window.center : window.center - 0.5;
  const width = isExact ? window.width : window.width - 1;
  if (width === 0) return (value) => (value <= center ? 0 : 1);
  return (value) => Math.min(Math.max((value - center) / width + 0.5, 0), 1);
}

function byLut({ first, bits, entries }: Lut): (value: number) => number {
  const most = 2 ** bits - 1;
  return (value) => {
    const place = Math.min(Math.max(Math.floor(value - first), 0), entries.length - 1);
    return entries[place]! / most;
  };
}
