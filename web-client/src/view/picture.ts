/** One picture that sharpens in place: each level replaces a coarser one once it is decoded. */

import type { Asset } from "../protocol/room";
import type { Level } from "../protocol/types.gen";
import { element, setAttributes } from "./dom";

/** Loads of one level that may fail before only a newer access or level starts it again. */
const MAX_TRIES = 4;
const RETRY_MS = 1_000;

const FULL = 0;
const sharpness = (level: number): number => (level === FULL ? Infinity : level);

/** The levels worth loading beyond `shown`, coarsest first: the first one that helps, then the best. */
export function wanted(levels: readonly Level[], shown: number | null): Level[] {
  const finer = levels
    .filter(({ level }) => shown === null || sharpness(level) > sharpness(shown))
    .sort((a, b) => sharpness(a.level) - sharpness(b.level));
  const best = finer.at(-1);
  if (best === undefined) return [];
  return shown === null && finer.length > 1 ? [finer[0]!, best] : [best];
}

export class Picture {
  private asset: string | null = null;
  private shown: number | null = null;
  private image: HTMLImageElement | null = null;
  private readonly tries = new Map<number, number>();
  private readonly loading = new Set<number>();

  constructor(private readonly stage: HTMLElement) {}

  /** Show an asset as far as its levels go; `urlOf` gives where a level lies. */
  show(asset: Asset, urlOf: (level: number) => string): void {
    if (asset.asset !== this.asset) this.clear();
    this.asset = asset.asset;
    setAttributes(this.stage, { "aria-label": asset.name });
    for (const { level } of wanted(asset.levels, this.shown)) {
      if (this.loading.has(level) || (this.tries.get(level) ?? 0) >= MAX_TRIES) continue;
      void this.load(level, urlOf);
    }
  }

  /** New permission to fetch: what failed before may be tried again. */
  renew(): void {
    this.tries.clear();
  }

  clear(): void {
    this.asset = null;
    this.shown = null;
    this.image?.remove();
    this.image = null;
    this.tries.clear();
    this.loading.clear();
  }

  private async load(level: number, urlOf: (level: number) => string): Promise<void> {
    const { asset } = this;
    const isWanted = (): boolean =>
      this.asset === asset && (this.shown === null || sharpness(level) > sharpness(this.shown));
    this.loading.add(level);
    const image = element("img", { alt: "", draggable: "false", decoding: "async" });
    image.src = urlOf(level);
    try {
      await image.decode();
    } catch {
      if (this.asset !== asset) return;
      const tries = (this.tries.get(level) ?? 0) + 1;
      this.tries.set(level, tries);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS * tries));
      if (this.asset === asset) this.loading.delete(level);
      if (isWanted() && tries < MAX_TRIES) void this.load(level, urlOf);
      return;
    }
    if (!isWanted()) return;
    this.loading.delete(level);
    this.shown = level;
    setAttributes(image, { "data-testid": "viewer-image", "data-level": level });
    // The finer picture lies over the coarser one before that one goes: no frame without any.
    this.stage.append(image);
    this.image?.remove();
    this.image = image;
  }
}
