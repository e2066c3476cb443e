/** The controls of a medical image: which frame, and which values run from black to white. */

import { byId, element, setAttributes, setText } from "./dom";
import type { GrayFrame, Window } from "./voi";

export interface ImagingNews {
  frameWanted(frame: number): void;
  /** Null is what the file itself asks for. */
  windowChosen(window: Window | null): void;
  fullRangeChosen(): void;
}

export interface ImagingView {
  readonly frames: number;
  readonly frame: number;
  /** The frame on the screen; null while there is none, or of colours. */
  readonly gray: GrayFrame | null;
  readonly chosen: Window | null;
}

const FILE = "file";
const FULL = "full";
const OWN = "own";

export class ImagingBar {
  news: ImagingNews | null = null;

  private readonly bar = byId("imaging", HTMLElement);
  private readonly framing = byId("framing", HTMLElement);
  private readonly slider = byId("frame-slider", HTMLInputElement);
  private readonly count = byId("frame-count", HTMLElement);
  private readonly windowing = byId("windowing", HTMLElement);
  private readonly center = byId("window-center", HTMLInputElement);
  private readonly width = byId("window-width", HTMLInputElement);
  private readonly presets = byId("window-preset", HTMLSelectElement);
  private presetsOf: GrayFrame | null = null;
  private view: ImagingView | null = null;

  constructor() {
    this.slider.addEventListener("input", () => this.news?.frameWanted(this.slider.valueAsNumber));
    for (const input of [this.center, this.width]) {
      input.addEventListener("change", () => this.typed());
      input.addEventListener("blur", () => this.view !== null && this.render(this.view));
    }
    this.presets.addEventListener("change", () => this.preset());
  }

  render(view: ImagingView): void {
    this.view = view;
    const { frames, frame, gray, chosen } = view;
    this.bar.hidden = frames < 2 && gray === null;
    this.framing.hidden = frames < 2;
    this.slider.max = String(frames - 1);
    this.slider.value = String(frame);
    setText(this.count, `${frame + 1} / ${frames}`);
    setAttributes(this.slider, { "aria-valuetext": `Frame ${frame + 1} of ${frames}` });
    this.windowing.hidden = gray === null;
    if (gray === null) return;
    if (this.presetsOf !== gray) this.fillPresets(gray);
    const index = gray.windows.findIndex(
      ({ center, width }) => center === chosen?.center && width === chosen.width,
    );
    this.presets.value = chosen === null ? FILE : index < 0 ? OWN : String(index);
    const shown = chosen ?? (gray.lut === null ? gray.windows[0] : undefined);
    setNumber(this.center, shown?.center, shown?.width);
    setNumber(this.width, shown?.width, shown?.width);
  }

  private fillPresets(gray: GrayFrame): void {
    this.presetsOf = gray;
    const option = (value: string, text: string): HTMLElement => element("option", { value }, text);
    this.presets.replaceChildren(
      option(FILE, gray.lut === null ? "As in the file" : "Table of the file"),
      ...gray.windows.map(({ center, width, name }, index) =>
        option(String(index), `${name || `Window ${index + 1}`}: ${round(center)} / ${round(width)}`),
      ),
      option(FULL, "Full range of this frame"),
      option(OWN, "Own window"),
    );
  }

  private typed(): void {
    const [center, width] = [this.center.valueAsNumber, this.width.valueAsNumber];
    if (Number.isFinite(center) && Number.isFinite(width)) {
      this.news?.windowChosen({ center, width });
    }
  }

  private preset(): void {
    const { value } = this.presets;
    const window = this.presetsOf?.windows[Number(value)];
    if (value === FILE) this.news?.windowChosen(null);
    else if (value === FULL) this.news?.fullRangeChosen();
    else if (window !== undefined) this.news?.windowChosen(window);
  }
}

/** What somebody is typing into is left alone until they leave it. */
function setNumber(input: HTMLInputElement, value: number | undefined, scale = 1): void {
  if (document.activeElement === input) return;
  input.value = value === undefined ? "" : String(round(value, scale));
}

/** To a thousandth of the width, which no eye can tell. */
function round(value: number, scale = value): number {
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.max(Math.abs(scale), 1e-9))));
  return Number(value.toFixed(Math.min(digits, 12)));
}
