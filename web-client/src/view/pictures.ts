/** The left side of the page: one picture with its marks, the tools, and the strip of all pictures. */

import type { Asset, RoomState } from "../protocol/room";
import type { Session } from "../protocol/session";
import type {
  AnyOp,
  AssetProgress,
  Annotation,
  CameraState,
  LabRow,
  Role,
  Shape,
} from "../protocol/types.gen";
import { mayUpload, mayWrite } from "../roles";
import type { Upload } from "../upload";
import { AnnotationLayer } from "./annotations";
import { AssetStrip } from "./assets";
import { byId, setAttributes, setText } from "./dom";
import { Gestures, type Tool } from "./gestures";
import { ImagingBar } from "./imagingbar";
import { Inspector } from "./inspector";
import { Cursors } from "./presence";
import { Series } from "./series";
import { Timeline } from "./timeline";
import { duration, isRecording } from "./speech";
import { Viewer, ZOOM_STEP } from "./viewer";
import type { Box, Place } from "./viewport";

/** A place that is spoken of: a box, and the row that it came from. */
export interface Spot {
  readonly asset: string;
  readonly box: Box;
  readonly observation: string;
}

export interface PicturesNews {
  act(op: AnyOp): void;
  filesChosen(files: readonly File[]): void;
  pointed(asset: string | null, place: Place | null): void;
  pictureChosen(asset: string): void;
  markDeleted(id: string): void;
}

const TOOL_KEYS: Record<string, Tool> = {
  v: "select",
  r: "rectangle",
  e: "ellipse",
  p: "point",
  l: "polyline",
  w: "window",
};
const STEP_KEYS: Record<string, number> = { PageUp: -1, PageDown: 1 };

export class Pictures {
  private readonly viewer: Viewer;
  private readonly layer: AnnotationLayer;
  private readonly gestures: Gestures;
  private readonly inspector: Inspector;
  private readonly strip: AssetStrip;
  private readonly cursors: Cursors;
  private readonly series: Series;
  private readonly timeline: Timeline;
  private readonly tools = [...document.querySelectorAll<HTMLElement>("[role=radio][data-tool]")];
  private readonly dropZone = byId("drop-zone", HTMLElement);
  private readonly player = byId("player", HTMLAudioElement);
  private readonly pictureName = byId("picture-name", HTMLElement);
  private readonly nothingHere = byId("nothing-here", HTMLElement);
  private spot: Spot | null = null;

  constructor(
    private readonly session: Session,
    private readonly news: PicturesNews,
    private readonly newId: () => string,
    private chosen: string | null,
  ) {
    const root = byId("viewer", HTMLElement);
    const overlay = byId("overlay", SVGSVGElement);
    const stage = byId("stage", HTMLElement);
    this.viewer = new Viewer(root, stage, overlay);
    this.series = new Series(stage, new ImagingBar(), (frame) => this.frameShown(frame));
    this.timeline = new Timeline(stage, () => this.keyframeShown());
    this.layer = new AnnotationLayer(this.viewer, overlay, byId("labels", HTMLElement));
    this.cursors = new Cursors(byId("cursors", HTMLElement), this.viewer);
    this.inspector = new Inspector({
      patched: (id, change) => news.act({ type: "annotation.patch", id, ...change }),
      deleted: (id) => this.delete(id),
    });
    this.gestures = new Gestures(this.viewer, this.layer, {
      shapeDrawn: (shape) => this.put(shape),
      shapeChanged: (id, shape) => news.act({ type: "annotation.patch", id, shape }),
      selectionChanged: () => this.inspect(),
      markOpened: () => this.inspector.focus(),
      pointerMoved: (place) => news.pointed(this.viewer.asset, place),
      windowDragged: (by) => this.series.dragWindow(by),
      mayDraw: () => this.mayDraw(),
    });
    this.strip = new AssetStrip(byId("assets", HTMLElement), {
      assetChosen: (asset) => this.choose(asset),
      levelUrl: (asset, level) => this.levelUrl(asset, level),
      frameUrl: (asset, frame) => this.frameUrl(asset, frame),
    });
    this.listen(root);
    this.useTool("rectangle");
  }

  get asset(): string | null {
    return this.viewer.asset;
  }

  choose(asset: string): void {
    this.chosen = asset;
    this.news.pictureChosen(asset);
    this.layer.select(null);
    this.render([], new Map(), new Map());
    this.news.pointed(asset, null);
  }

  render(
    uploads: readonly Upload[],
    progress: ReadonlyMap<string, AssetProgress>,
    cameras: ReadonlyMap<string, CameraState>,
  ): void {
    const { room } = this.session;
    const asset = this.assetToShow(room);
    if (asset === null) this.viewer.clear();
    else this.viewer.show(asset, (level) => this.levelUrl(asset.asset, level) ?? "");
    if (!mayWrite(this.role) && this.gestures.tool !== "window") this.useTool("select");
    const decoded = asset === null ? undefined : progress.get(asset.asset);
    const ready = decoded?.stage === "frames" ? decoded.done : 0;
    this.series.show(asset, ready, (frame) => this.frameUrl(asset?.asset ?? "", frame));
    this.timeline.show(asset, (frame) => this.frameUrl(asset?.asset ?? "", frame));
    this.offerWindowTool();
    const isEmpty = room.assets.size === 0 && uploads.length === 0;
    this.dropZone.hidden = !mayUpload(this.role) || !isEmpty;
    this.nothingHere.hidden = mayUpload(this.role) || !isEmpty;
    setText(this.pictureName, asset === null ? "" : pictureWords(asset));
    setAttributes(this.pictureName, { title: asset?.name ?? null });
    this.play(asset);
    this.strip.render(room, uploads, progress, cameras, asset?.asset ?? null);
    this.renderMarks();
    this.renderCursors();
  }

  renderCursors(): void {
    this.cursors.render(this.session.people, this.session.welcome?.participant ?? "");
  }

  renewAccess(): void {
    this.viewer.renewAccess();
    this.series.renewAccess();
  }

  /** Light up a place while it is spoken of. */
  light(place: Spot | null): void {
    this.spot = place;
    const isHere =
      place !== null && place.asset === this.viewer.asset && this.isOnScreen(this.frameOf(place));
    this.layer.highlight(isHere ? place.box : null);
  }

  /** Bring a place into view. */
  reveal(place: Spot): void {
    if (place.asset !== this.viewer.asset) this.choose(place.asset);
    this.series.go(0);
    this.timeline.reveal(this.frameOf(place));
    this.light(place);
    this.viewer.reveal(place.box);
  }

  /** The keyframe on which a row was read; of a still picture its only frame. */
  private frameOf({ asset, observation }: Spot): number {
    const row = this.session.room.assets.get(asset)?.rows.find(({ id }) => id === observation);
    return row === undefined || row.type === "speech" ? 0 : (row.frame ?? 0);
  }

  /** Whether what is on a frame of the asset can be seen now. */
  private isOnScreen(frame: number): boolean {
    return this.timeline.isUsed ? this.timeline.has(frame) : frame === this.viewer.frame;
  }

  private assetToShow(room: RoomState): Asset | null {
    const known = this.chosen === null ? undefined : room.assets.get(this.chosen);
    if (known !== undefined && known.status !== "failed") return known;
    const usable = [...room.assets.values()].filter(({ status }) => status !== "failed");
    return usable.find((asset) => !isRecording(asset)) ?? usable[0] ?? known ?? null;
  }

  private levelUrl(asset: string, level: number): string | null {
    return this.mediaUrl(asset, `levels/${level}`);
  }

  private frameUrl(asset: string, frame: number): string | null {
    return this.mediaUrl(asset, `frames/${frame}`);
  }

  private mediaUrl(asset: string, part: string): string | null {
    const { media } = this.session;
    if (media === null) return null;
    const ticket = encodeURIComponent(media.ticket);
    return `${media.base}/${encodeURIComponent(asset)}/${part}?ticket=${ticket}`;
  }

  /** Offer to play a recording that browsers can play; raw samples are to be read only. */
  private play(asset: Asset | null): void {
    const isPlayable =
      asset?.status === "read" &&
      asset.media_type.startsWith("audio/") &&
      !asset.media_type.startsWith("audio/pcm");
    this.player.hidden = !isPlayable;
    if (!isPlayable) this.player.pause();
    else if (this.player.dataset["asset"] !== asset.asset) {
      this.player.dataset["asset"] = asset.asset;
      this.player.src = this.mediaUrl(asset.asset, "original") ?? "";
    }
  }

  private get role(): Role {
    return this.session.welcome?.role ?? "member";
  }

  private frameShown(frame: number): void {
    this.offerWindowTool();
    if (frame === this.viewer.frame) return;
    this.viewer.frame = frame;
    this.renderMarks();
  }

  private keyframeShown(): void {
    this.viewer.frame = this.timeline.shown?.frame ?? 0;
    this.renderMarks();
  }

  /** The tool is there while there is gray that it can change. */
  private offerWindowTool(): void {
    const { hasWindow } = this.series;
    byId("tool-window", HTMLElement).hidden = !hasWindow;
    if (!hasWindow && this.gestures.tool === "window") this.useTool("rectangle");
  }

  private mayDraw(): boolean {
    const asset = this.session.room.assets.get(this.viewer.asset ?? "");
    if (!mayWrite(this.role)) return false;
    if (this.timeline.isUsed) return this.timeline.shown !== null;
    return asset?.status === "committed" || asset?.status === "read";
  }

  private renderMarks(): void {
    const { asset } = this.viewer;
    const hasPlace = this.viewer.size !== null;
    const flags = this.flagsOf(asset);
    const marks = this.session
      .marks()
      .filter(({ mark }) => {
        const { target } = mark.annotation;
        return target.asset === asset && this.isOnScreen(target.frame ?? 0);
      })
      .map((drawn) => {
        const { observation } = drawn.mark.annotation;
        const isRead = drawn.mark.by.kind === "model" && observation != null;
        return { ...drawn, flag: isRead ? (flags.get(observation) ?? null) : null };
      });
    this.layer.render(hasPlace ? marks : []);
    this.light(this.spot);
    this.inspect();
  }

  private flagsOf(asset: string | null): ReadonlyMap<string, LabRow["flag"]> {
    const rows = this.session.room.assets.get(asset ?? "")?.rows ?? [];
    return new Map(rows.flatMap((row) => (row.type === "lab" ? [[row.id, row.flag]] : [])));
  }

  private inspect(): void {
    this.inspector.show(this.layer.find(this.layer.selected), this.mayDraw());
  }

  private put(shape: Shape): void {
    const { asset, frame } = this.viewer;
    if (asset === null) return;
    const { shown } = this.timeline;
    const still = frame === 0 ? { asset } : { asset, frame };
    const target = shown === null ? still : { asset, frame: shown.frame, pts_us: shown.pts_us };
    const annotation: Annotation = { id: this.newId(), target, shape };
    this.news.act({ type: "annotation.put", annotation });
    this.layer.select(annotation.id);
    this.inspect();
  }

  private delete(id: string): void {
    this.layer.select(null);
    this.news.act({ type: "annotation.delete", id });
    this.news.markDeleted(id);
    this.inspect();
    // What had the focus is gone; the keys go on working on the picture.
    this.viewer.root.focus({ preventScroll: true });
  }

  private useTool(tool: Tool): void {
    this.gestures.tool = tool;
    this.viewer.root.dataset["tool"] = tool;
    for (const button of this.tools) {
      const isUsed = button.dataset["tool"] === tool;
      setAttributes(button, { "aria-checked": String(isUsed), tabindex: isUsed ? 0 : -1 });
    }
  }

  private listen(root: HTMLElement): void {
    for (const button of this.tools) {
      button.addEventListener("click", () => this.useTool(button.dataset["tool"] as Tool));
      button.addEventListener("keydown", (event) => this.toolKey(event, button));
    }
    const { viewer } = this;
    byId("zoom-in", HTMLElement).addEventListener("click", () => viewer.zoomBy(ZOOM_STEP));
    byId("zoom-out", HTMLElement).addEventListener("click", () => viewer.zoomBy(1 / ZOOM_STEP));
    byId("zoom-fit", HTMLElement).addEventListener("click", () => viewer.fit());
    const level = byId("zoom-level", HTMLElement);
    viewer.watch(() => {
      const percent = `${Math.round(viewer.viewport.scale * 100)} %`;
      setText(level, viewer.size === null ? "" : percent);
    });
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const tool = TOOL_KEYS[event.key.toLowerCase()];
      const { selected } = this.layer;
      const step = STEP_KEYS[event.key];
      if (tool === "window" && !this.series.hasWindow) return;
      if (tool !== undefined) this.useTool(tool === "window" || mayWrite(this.role) ? tool : "select");
      else if (step !== undefined) {
        if (this.timeline.isUsed) this.timeline.step(step);
        else this.series.step(step);
        event.preventDefault();
      }
      else if ((event.key === "Delete" || event.key === "Backspace") && selected !== null) {
        if (this.mayDraw()) this.delete(selected);
      }
    });
    this.listenForFiles();
  }

  private toolKey(event: KeyboardEvent, button: HTMLElement): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const tools = this.tools.filter(({ hidden }) => !hidden);
    const next = tools[(tools.indexOf(button) + step + tools.length) % tools.length]!;
    this.useTool(next.dataset["tool"] as Tool);
    next.focus();
  }

  private listenForFiles(): void {
    const input = byId("file-input", HTMLInputElement);
    const page = byId("page", HTMLElement);
    const take = (files: FileList | null | undefined): void => {
      if (!mayUpload(this.role)) return;
      if (files && files.length > 0) this.news.filesChosen([...files]);
    };
    input.addEventListener("change", () => {
      take(input.files);
      input.value = "";
    });
    byId("add-files", HTMLElement).addEventListener("click", () => input.click());
    const drag = (event: DragEvent): void => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      page.classList.toggle("dragging", event.type === "dragover" && mayUpload(this.role));
      if (event.type === "drop") take(event.dataTransfer.files);
    };
    for (const type of ["dragover", "drop"] as const) page.addEventListener(type, drag);
    page.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) page.classList.remove("dragging");
    });
    page.addEventListener("paste", (event) => take(event.clipboardData?.files));
  }
}

function pictureWords(asset: Asset): string {
  if (isRecording(asset)) return `${asset.name} · ${duration(asset.duration_s)}`;
  return asset.width > 0 ? `${asset.name} · ${asset.width} × ${asset.height}` : asset.name;
}
