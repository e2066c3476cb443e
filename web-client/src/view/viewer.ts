/** The window onto one picture: zoom, pan, and where its layers lie. */

import type { Asset } from "../protocol/room";
import { setAttributes } from "./dom";
import { Picture } from "./picture";
import { fit, pan, reveal, toImage, toWindow, viewBox, zoom } from "./viewport";
import type { Box, Place, Size, Viewport } from "./viewport";

/** Above this scale single image pixels are what one wants to see. */
const PIXELATED_SCALE = 6;
const WHEEL_STEP = 0.0016;
const KEY_PAN_PX = 60;
export const ZOOM_STEP = 1.4;

export class Viewer {
  viewport: Viewport = { scale: 1, x: 0, y: 0 };
  size: Size | null = null;
  asset: string | null = null;
  /** Of the asset, the frame on the screen. */
  frame = 0;

  /** The size of the window onto the picture, in CSS px. */
  window: Size;

  private isFitted = true;
  private readonly picture: Picture;
  private readonly watchers: (() => void)[] = [];

  constructor(
    readonly root: HTMLElement,
    private readonly stage: HTMLElement,
    private readonly overlay: SVGSVGElement,
  ) {
    this.picture = new Picture(stage);
    const { width, height } = root.getBoundingClientRect();
    this.window = { width, height };
    new ResizeObserver(() => this.resized()).observe(root);
    root.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    root.addEventListener("keydown", (event) => this.keyed(event));
  }

  /** Call `watcher` after each change of the viewport. */
  watch(watcher: () => void): void {
    this.watchers.push(watcher);
  }

  /** Show an asset; its place is laid out as soon as its size is known, before any level. */
  show(asset: Asset, urlOf: (level: number) => string): void {
    if (asset.asset !== this.asset) {
      this.asset = asset.asset;
      this.frame = 0;
      this.size = null;
      this.isFitted = true;
      this.picture.clear();
    }
    if (asset.width > 0 && asset.height > 0) {
      const { width, height } = asset;
      if (this.size?.width !== width || this.size.height !== height) {
        this.size = { width, height };
        this.fit();
      }
      this.picture.show(asset, urlOf);
    }
    this.stage.hidden = this.size === null;
  }

  /** Names what is on the screen: another asset or frame has another name. */
  get shown(): string | null {
    return this.asset === null ? null : `${this.asset} ${this.frame}`;
  }

  clear(): void {
    this.asset = null;
    this.frame = 0;
    this.size = null;
    this.picture.clear();
    this.stage.hidden = true;
    this.changed();
  }

  renewAccess(): void {
    this.picture.renew();
  }

  /** The image point under a place of the browser's window, from a pointer event. */
  imagePoint(event: { clientX: number; clientY: number }): Place {
    return toImage(this.viewport, this.windowPoint(event));
  }

  windowPoint(event: { clientX: number; clientY: number }): Place {
    const { left, top } = this.root.getBoundingClientRect();
    const { clientLeft, clientTop } = this.root;
    return { x: event.clientX - left - clientLeft, y: event.clientY - top - clientTop };
  }

  place(point: Place): Place {
    return toWindow(this.viewport, point);
  }

  fit(): void {
    if (this.size === null) return;
    this.isFitted = true;
    this.move(fit(this.window, this.size));
  }

  zoomBy(factor: number, anchor?: Place): void {
    if (this.size === null) return;
    this.isFitted = false;
    const middle = { x: this.window.width / 2, y: this.window.height / 2 };
    this.move(zoom(this.viewport, anchor ?? middle, factor, this.window, this.size));
  }

  panBy(by: Place): void {
    if (this.size === null) return;
    this.isFitted = false;
    this.move(pan(this.viewport, by, this.window, this.size));
  }

  reveal(box: Box): void {
    if (this.size === null) return;
    this.isFitted = false;
    this.move(reveal(this.viewport, box, this.window, this.size));
  }

  private resized(): void {
    const { clientWidth: width, clientHeight: height } = this.root;
    const before = this.window;
    this.window = { width, height };
    if (this.size === null) this.changed();
    else if (this.isFitted) this.fit();
    else {
      const by = { x: (width - before.width) / 2, y: (height - before.height) / 2 };
      this.move(pan(this.viewport, by, this.window, this.size));
    }
  }

  private wheeled(event: WheelEvent): void {
    event.preventDefault();
    // Lines and pages are told as such by some mice; a line is about 16 px.
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : 16;
    const speed = event.ctrlKey ? WHEEL_STEP * 5 : WHEEL_STEP;
    const delta = Math.max(-240, Math.min(240, event.deltaY * unit));
    this.zoomBy(Math.exp(-delta * speed), this.windowPoint(event));
  }

  private keyed(event: KeyboardEvent): void {
    if (event.target !== this.root || event.ctrlKey || event.metaKey || event.altKey) return;
    const pans: Record<string, Place> = {
      ArrowLeft: { x: KEY_PAN_PX, y: 0 },
      ArrowRight: { x: -KEY_PAN_PX, y: 0 },
      ArrowUp: { x: 0, y: KEY_PAN_PX },
      ArrowDown: { x: 0, y: -KEY_PAN_PX },
    };
    const by = pans[event.key];
    if (by !== undefined) this.panBy(by);
    else if (event.key === "+" || event.key === "=") this.zoomBy(ZOOM_STEP);
    else if (event.key === "-") this.zoomBy(1 / ZOOM_STEP);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  private move(viewport: Viewport): void {
    this.viewport = viewport;
    this.changed();
  }

  private changed(): void {
    if (this.size !== null) {
      const { scale, x, y } = this.viewport;
      // A transform moves no layout, so neither zooming nor sharpening shifts anything.
      this.stage.style.width = `${this.size.width}px`;
      this.stage.style.height = `${this.size.height}px`;
      this.stage.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
      this.stage.classList.toggle("pixelated", scale >= PIXELATED_SCALE);
      setAttributes(this.overlay, { viewBox: viewBox(this.viewport, this.window) });
    }
    for (const watcher of this.watchers) watcher();
  }
}
