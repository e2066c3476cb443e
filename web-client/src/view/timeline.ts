/** The keyframes of a video or camera over its poster: one is on the screen, with its time. */

import type { Asset } from "../protocol/room";
import type { Keyframe } from "../protocol/types.gen";
import { isOutOfRange } from "./labtable";
import { byId, element, setAttributes, setText } from "./dom";
import { duration } from "./speech";

export class Timeline {
  /** The keyframe on the screen: marks made now are on it. Null when there is none. */
  shown: Keyframe | null = null;

  private asset: Asset | null = null;
  /** What a person chose; null follows the newest of a camera, the first of a video. */
  private chosen: number | null = null;
  private loading: number | null = null;
  private image: HTMLImageElement | null = null;
  private urlOf: (frame: number) => string | null = () => null;
  private readonly bar = byId("timeline", HTMLElement);
  private readonly slider = byId("timeline-slider", HTMLInputElement);
  private readonly time = byId("timeline-time", HTMLOutputElement);
  private readonly flags = byId("timeline-flags", HTMLElement);
  private readonly live = byId("timeline-live", HTMLButtonElement);

  constructor(
    private readonly stage: HTMLElement,
    private readonly frameShown: () => void,
  ) {
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    this.live.addEventListener("click", () => this.follow());
  }

  get isUsed(): boolean {
    return this.asset !== null;
  }

  /** Show an asset's keyframes; nothing of one that has none. */
  show(asset: Asset | null, urlOf: (frame: number) => string | null): void {
    this.urlOf = urlOf;
    if (asset === null || asset.keyframes.length === 0 || asset.status === "failed") {
      this.clear();
      return;
    }
    if (asset.asset !== this.asset?.asset) this.clear();
    this.asset = asset;
    this.load();
    this.render();
  }

  step(by: number): void {
    const at = this.index();
    if (at >= 0) this.goTo(at + by);
  }

  /** Show the keyframe with this number, or the one nearest to it that is still kept. */
  reveal(frame: number): void {
    const frames = this.asset?.keyframes ?? [];
    const at = frames.findLastIndex((keyframe) => keyframe.frame <= frame);
    this.goTo(Math.max(0, at));
  }

  /** Whether what was marked on a keyframe is on the one that is shown, or on one like it. */
  has(frame: number): boolean {
    return this.shown !== null && (frame === this.shown.frame || frame === this.shown.like);
  }

  private follow(): void {
    this.chosen = null;
    this.load();
    this.render();
  }

  private goTo(index: number): void {
    const frames = this.asset?.keyframes ?? [];
    const wanted = frames[Math.min(Math.max(index, 0), frames.length - 1)];
    if (wanted === undefined) return;
    this.chosen = wanted.frame;
    this.load();
    this.render();
  }

  private get isLive(): boolean {
    return this.asset?.kind === "camera" && this.asset.status === "open";
  }

  private wanted(): Keyframe | null {
    const frames = this.asset?.keyframes ?? [];
    const chosen = frames.find(({ frame }) => frame === this.chosen);
    return chosen ?? (this.isLive ? frames.at(-1) : frames[0]) ?? null;
  }

  private index(): number {
    const wanted = this.wanted();
    return (this.asset?.keyframes ?? []).findIndex(({ frame }) => frame === wanted?.frame);
  }

  /** Fetch what is wanted; what came before stays on the screen until it is decoded. */
  private load(): void {
    const { asset } = this;
    const wanted = this.wanted();
    if (asset === null || wanted === null || this.loading !== null) return;
    if (this.shown?.frame === wanted.frame) return;
    const url = this.urlOf(wanted.frame);
    if (url === null) return;
    this.loading = wanted.frame;
    const image = element("img", { alt: "", draggable: "false", "data-testid": "viewer-keyframe" });
    setAttributes(image, { class: "keyframe", "data-frame": wanted.frame });
    image.src = url;
    image.decode().then(
      () => this.loaded(asset.asset, wanted, image),
      () => this.loaded(asset.asset, wanted, null),
    );
  }

  private loaded(asset: string, keyframe: Keyframe, image: HTMLImageElement | null): void {
    if (this.asset?.asset !== asset) return;
    this.loading = null;
    if (image !== null) {
      if (this.image === null) this.stage.append(image);
      else this.image.replaceWith(image);
      this.image = image;
      this.shown = keyframe;
      this.frameShown();
    }
    this.render();
    // A camera went on meanwhile. One that is gone already is not asked for again and again.
    if (image !== null) this.load();
  }

  private clear(): void {
    this.asset = null;
    this.chosen = null;
    this.loading = null;
    this.shown = null;
    this.image?.remove();
    this.image = null;
    this.bar.hidden = true;
  }

  private render(): void {
    const { asset } = this;
    this.bar.hidden = asset === null;
    if (asset === null) return;
    const frames = asset.keyframes;
    const at = this.index();
    setAttributes(this.slider, { max: frames.length - 1, "data-frame": this.wanted()?.frame ?? null });
    this.slider.value = String(at);
    const wanted = frames[at];
    const start = asset.kind === "camera" ? (frames[0]?.pts_us ?? 0) : 0;
    const seconds = ((wanted?.pts_us ?? 0) - start) / 1e6;
    setText(this.time, this.isLive && this.chosen === null ? "live" : duration(seconds));
    this.live.hidden = !this.isLive || this.chosen === null;
    this.renderFlags(asset, frames);
  }

  /** A tick for each keyframe on which a value out of range was read. */
  private renderFlags(asset: Asset, frames: readonly Keyframe[]): void {
    const flagged = new Set(
      asset.rows.flatMap((row) => (row.type === "lab" && isOutOfRange(row) ? [row.frame ?? 0] : [])),
    );
    const ticks = frames.flatMap(({ frame }, index) => (flagged.has(frame) ? [index] : []));
    const key = ticks.join() + ` of ${frames.length}`;
    if (this.flags.dataset["ticks"] === key) return;
    this.flags.dataset["ticks"] = key;
    const last = Math.max(1, frames.length - 1);
    this.flags.replaceChildren(
      ...ticks.map((index) => {
        const tick = element("i", { "data-testid": "timeline-flag" });
        tick.style.left = `${(index / last) * 100}%`;
        return tick;
      }),
    );
  }
}
