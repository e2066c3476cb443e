/** A medical image over its levels: the frame that is looked at, with all its depth, on a canvas. */

import type { Asset } from "../protocol/room";
import { element, setAttributes } from "./dom";
import { FrameStore, NotReady, type FrameSource } from "./framestore";
import type { ImagingBar } from "./imagingbar";
import type { Place } from "./viewport";
import { fullRange, paint, readFrame, shadesOf, usable, type GrayFrame, type Window } from "./voi";

type Loaded = GrayFrame | ImageBitmap;

/** Of a drag: the part of the width per CSS px by which it grows, and the center moves. */
const WIDTH_STEP = 0.006;
const CENTER_STEP = 0.004;

export class Series {
  /** The frame on the screen: marks made now are on it, whatever the slider asks for. */
  frame = 0;

  private asset: Asset | null = null;
  private wanted = 0;
  private ready = 0;
  private chosen: Window | null = null;
  private painted: Loaded | null = null;
  private store: FrameStore<Loaded> | null = null;
  private canvas: HTMLCanvasElement | null = null;
  private isPainting = false;
  private urlOf: (frame: number) => string | null = () => null;

  constructor(
    private readonly stage: HTMLElement,
    private readonly bar: ImagingBar,
    private readonly frameShown: (frame: number) => void,
  ) {
    bar.news = {
      frameWanted: (frame) => this.go(frame),
      windowChosen: (window) => this.choose(window),
      fullRangeChosen: () => this.chooseFullRange(),
    };
  }

  /** Whether gray can be spread otherwise than the file says. */
  get hasWindow(): boolean {
    return this.painted !== null && "samples" in this.painted;
  }

  /** Show an asset, of whose frames the first `ready` can be fetched. */
  show(asset: Asset | null, ready: number, urlOf: (frame: number) => string | null): void {
    this.urlOf = urlOf;
    if (asset?.asset !== this.asset?.asset) this.clear();
    if (asset === null || asset.imaging === null || asset.status === "failed") {
      this.clear();
      return;
    }
    this.asset = asset;
    this.ready = asset.status === "read" ? asset.frames : Math.max(this.ready, ready);
    // One frame of colours is what the levels show already.
    if (this.store === null && (asset.frames > 1 || !asset.imaging.color)) {
      const bytes = asset.width * asset.height * (asset.imaging.color ? 4 : 2);
      this.store = new FrameStore<Loaded>(this.source(bytes), () => this.paintSoon());
      this.go(0);
    }
    this.store?.fetchMore();
  }

  renewAccess(): void {
    this.store?.renew();
  }

  /** Show another frame, as soon as it is here. */
  go(frame: number): void {
    const last = (this.asset?.frames ?? 1) - 1;
    this.wanted = Math.min(Math.max(frame, 0), last);
    this.showControls();
    this.paintSoon();
  }

  step(by: number): void {
    this.go(this.wanted + by);
  }

  /** Right widens, down raises the center. */
  dragWindow({ x, y }: Place): void {
    const before = this.window();
    if (before === null) return;
    const width = before.width * Math.exp(x * WIDTH_STEP);
    this.choose({ center: before.center + y * before.width * CENTER_STEP, width });
  }

  private choose(window: Window | null): void {
    const frame = this.painted;
    if (frame === null || !("samples" in frame)) return;
    this.chosen = window === null ? null : usable(window, frame.function);
    this.showControls();
    this.paintSoon();
  }

  private chooseFullRange(): void {
    if (this.painted !== null && "samples" in this.painted) this.choose(fullRange(this.painted));
  }

  /** The window in use; of a table of the file, the one to begin with instead. */
  private window(): Window | null {
    const frame = this.painted;
    if (frame === null || !("samples" in frame)) return null;
    return this.chosen ?? frame.windows[0] ?? null;
  }

  private clear(): void {
    this.store?.close();
    this.store = null;
    this.asset = null;
    this.painted = null;
    this.chosen = null;
    this.canvas?.remove();
    this.canvas = null;
    this.frame = 0;
    this.wanted = 0;
    this.ready = 0;
    this.showControls();
  }

  private source(bytes: number): FrameSource<Loaded> {
    const ready = (): number => this.ready;
    return {
      bytes,
      load: (frame) => this.load(frame),
      get ready() {
        return ready();
      },
    };
  }

  private async load(frame: number): Promise<Loaded> {
    const url = this.urlOf(frame);
    if (url === null) throw new NotReady();
    const answer = await fetch(url);
    if (answer.status === 404) throw new NotReady();
    if (!answer.ok) throw new Error(`frame ${frame}: ${answer.status}`);
    if (answer.headers.get("content-type")?.startsWith("image/")) {
      return createImageBitmap(await answer.blob());
    }
    return readFrame(await answer.arrayBuffer());
  }

  /** Paint once in the next animation frame, however often something changes before it. */
  private paintSoon(): void {
    if (this.isPainting) return;
    this.isPainting = true;
    requestAnimationFrame(() => {
      this.isPainting = false;
      this.paintNow();
    });
  }

  private paintNow(): void {
    const loaded = this.store?.want(this.wanted) ?? null;
    if (loaded === null || this.asset === null) return;
    this.canvas ??= this.newCanvas(this.asset);
    this.painted = loaded;
    const context = this.canvas.getContext("2d")!;
    if ("samples" in loaded) {
      const pixels = context.createImageData(loaded.width, loaded.height);
      paint(loaded.samples, shadesOf(loaded, loaded.samples, this.chosen), pixels.data);
      context.putImageData(pixels, 0, 0);
    } else context.drawImage(loaded, 0, 0);
    this.frame = this.wanted;
    const window = this.window();
    setAttributes(this.canvas, {
      "data-frame": this.frame,
      "data-center": window?.center ?? null,
      "data-width": window?.width ?? null,
    });
    this.showControls();
    this.frameShown(this.frame);
  }

  private newCanvas({ width, height }: Asset): HTMLCanvasElement {
    const canvas = element("canvas", { "data-testid": "viewer-frame", width, height });
    this.stage.append(canvas);
    return canvas;
  }

  private showControls(): void {
    const { asset, painted } = this;
    const gray = painted !== null && "samples" in painted ? painted : null;
    this.bar.render({
      frames: this.store === null ? 1 : (asset?.frames ?? 1),
      frame: this.wanted,
      gray,
      chosen: this.chosen,
    });
  }
}
