/** The frames of one series: the wanted one first, then those after it, within a bound of bytes. */

/** Loads under way at once; more would only make the wanted frame wait. */
const MAX_LOADS = 2;
/** Frames fetched ahead, so that stepping on finds them there. */
const AHEAD = 4;
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_TRIES = 5;
const RETRY_MS = 700;

/** The frame cannot be had now; asking again costs no try. */
export class NotReady extends Error {}

export interface FrameSource<T> {
  /** How many frames, from the first on, can be fetched; it only rises. */
  readonly ready: number;
  /** What one frame takes in memory. */
  readonly bytes: number;
  load(frame: number): Promise<T>;
}

export class FrameStore<T> {
  private wanted = 0;
  private isClosed = false;
  /** In the order of their last use. */
  private readonly kept = new Map<number, T>();
  private readonly loading = new Set<number>();
  private readonly tries = new Map<number, number>();

  constructor(
    private readonly source: FrameSource<T>,
    private readonly arrived: (frame: number) => void,
    private readonly retryMs = RETRY_MS,
  ) {}

  /** The frame if it is here; else it is fetched next. */
  want(frame: number): T | null {
    this.wanted = frame;
    const known = this.kept.get(frame);
    if (known !== undefined) {
      this.kept.delete(frame);
      this.kept.set(frame, known);
    }
    this.fetchMore();
    return known ?? null;
  }

  /** New permission to fetch: what failed before may be tried again. */
  renew(): void {
    this.tries.clear();
    this.fetchMore();
  }

  /** Fetch on, after more frames became ready. */
  fetchMore(): void {
    while (!this.isClosed && this.loading.size < MAX_LOADS) {
      const next = this.next();
      if (next === null) return;
      void this.fetch(next);
    }
  }

  close(): void {
    this.isClosed = true;
    this.kept.clear();
  }

  private next(): number | null {
    const { ready, bytes } = this.source;
    const room = Math.max(1, Math.min(AHEAD + 1, Math.floor(MAX_BYTES / bytes)));
    for (let step = 0; step < room; step += 1) {
      const frame = this.wanted + step;
      if (frame >= ready) return null;
      const isHere = this.kept.has(frame) || this.loading.has(frame);
      if (!isHere && (this.tries.get(frame) ?? 0) < MAX_TRIES) return frame;
    }
    return null;
  }

  private async fetch(frame: number): Promise<void> {
    this.loading.add(frame);
    try {
      const loaded = await this.source.load(frame);
      if (this.isClosed) return;
      this.kept.set(frame, loaded);
      this.evict();
      this.arrived(frame);
    } catch (error) {
      if (!(error instanceof NotReady)) this.tries.set(frame, (this.tries.get(frame) ?? 0) + 1);
      await new Promise((resolve) => setTimeout(resolve, this.retryMs));
    } finally {
      this.loading.delete(frame);
      this.fetchMore();
    }
  }

  private evict(): void {
    for (const frame of this.kept.keys()) {
      if (this.kept.size * this.source.bytes <= MAX_BYTES) return;
      if (frame !== this.wanted) this.kept.delete(frame);
    }
  }
}
