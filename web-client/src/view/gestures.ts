/**
 * What a pointer does on the picture.
 *
 *     down on a corner of the selected mark ─► resize      two fingers ─► pinch
 *     down with a drawing tool              ─► draw        middle button, space ─► pan
 *     down on a mark with the select tool   ─► move        down beside a mark ─► pan
 *     down with the window tool             ─► window
 *
 * A press that does not move selects. Everything is in image pixels from the first event on.
 */

import type { Shape } from "../protocol/types.gen";
import type { AnnotationLayer } from "./annotations";
import { MAX_POINTS, drawn, moved, resized, type Corner, type DrawTool } from "./geometry";
import type { Viewer } from "./viewer";
import type { Place } from "./viewport";

export type Tool = "select" | "window" | DrawTool;

export interface GestureNews {
  /** Somebody here drew this on the shown asset. */
  shapeDrawn(shape: Shape): void;
  shapeChanged(id: string, shape: Shape): void;
  selectionChanged(): void;
  /** By a key: what is to be changed about the selected mark comes next. */
  markOpened(): void;
  pointerMoved(place: Place | null): void;
  /** The window tool moved by so many CSS pixels. */
  windowDragged(by: Place): void;
  /** Whether marks may be made or changed on what is shown. */
  mayDraw(): boolean;
}

/** A press that stays within this many CSS pixels is a click. */
const CLICK_PX = 4;

type Drag =
  | { does: "draw"; tool: DrawTool; stroke: Place[]; hit: string | null }
  | { does: "move"; id: string; shape: Shape; from: Place }
  | { does: "resize"; id: string; shape: Shape; from: Place; corner: Corner }
  | { does: "pan" | "window"; last: Place; hit: string | null };

export class Gestures {
  tool: Tool = "rectangle";

  private readonly pointers = new Map<number, Place>();
  private drag: Drag | null = null;
  private start: Place | null = null;
  private startedOn: string | null = null;
  private hasMoved = false;
  private isSpaceHeld = false;

  constructor(
    private readonly viewer: Viewer,
    private readonly layer: AnnotationLayer,
    private readonly news: GestureNews,
  ) {
    const { root } = viewer;
    root.addEventListener("pointerdown", (event) => this.down(event));
    root.addEventListener("pointermove", (event) => this.move(event));
    root.addEventListener("pointerup", (event) => this.up(event));
    root.addEventListener("pointercancel", (event) => this.cancel(event));
    root.addEventListener("pointerleave", () => this.news.pointerMoved(null));
    root.addEventListener("auxclick", (event) => event.preventDefault());
    root.addEventListener("keydown", (event) => this.keyed(event));
    root.addEventListener("keyup", (event) => {
      if (event.key === " ") this.isSpaceHeld = false;
    });
    root.addEventListener("blur", () => (this.isSpaceHeld = false));
  }

  private down(event: PointerEvent): void {
    if (this.viewer.size === null || event.button === 2) return;
    const place = this.viewer.windowPoint(event);
    this.pointers.set(event.pointerId, place);
    this.viewer.root.setPointerCapture(event.pointerId);
    if (this.pointers.size > 1) {
      this.abandon();
      return;
    }
    event.preventDefault();
    this.viewer.root.focus({ preventScroll: true });
    this.start = place;
    this.startedOn = this.viewer.shown;
    this.hasMoved = false;
    this.drag = this.dragFor(event, place);
  }

  private dragFor(event: PointerEvent, place: Place): Drag {
    const target = event.target instanceof Element ? event.target : null;
    const hit = target?.closest("[data-mark]")?.getAttribute("data-mark") ?? null;
    const { tool } = this;
    // How gray is shown is everybody's own business, also of those who may not draw.
    const isAllowed = tool === "window" || this.news.mayDraw();
    if (event.button === 1 || this.isSpaceHeld || !isAllowed) {
      return { does: "pan", last: place, hit };
    }
    if (tool === "window") return { does: "window", last: place, hit };
    const from = this.viewer.imagePoint(event);
    const corner = target?.getAttribute("data-corner") as Corner | null | undefined;
    const { selected } = this.layer;
    const shape = selected === null ? null : this.layer.shapeOf(selected);
    if (corner && selected !== null && shape !== null) {
      return { does: "resize", id: selected, shape, from, corner };
    }
    if (tool !== "select") {
      return { does: "draw", tool, stroke: [this.within(from)], hit };
    }
    const hitShape = hit === null ? null : this.layer.shapeOf(hit);
    if (hit === null || hitShape === null) return { does: "pan", last: place, hit: null };
    this.select(hit);
    return { does: "move", id: hit, shape: hitShape, from };
  }

  private move(event: PointerEvent): void {
    if (this.viewer.size === null) return;
    if (this.drag !== null && this.viewer.shown !== this.startedOn) this.abandon();
    const place = this.viewer.windowPoint(event);
    this.news.pointerMoved(this.viewer.imagePoint(event));
    if (this.pointers.size === 2 && this.pointers.has(event.pointerId)) {
      this.pinch(event.pointerId, place);
      return;
    }
    const { drag, start } = this;
    if (drag === null || start === null || !this.pointers.has(event.pointerId)) return;
    this.pointers.set(event.pointerId, place);
    if (Math.hypot(place.x - start.x, place.y - start.y) >= CLICK_PX) this.hasMoved = true;
    this.follow(drag, event, place);
  }

  private follow(drag: Drag, event: PointerEvent, place: Place): void {
    const point = this.viewer.imagePoint(event);
    switch (drag.does) {
      case "pan":
        this.viewer.panBy({ x: place.x - drag.last.x, y: place.y - drag.last.y });
        drag.last = place;
        return;
      case "window":
        if (this.hasMoved) {
          this.news.windowDragged({ x: place.x - drag.last.x, y: place.y - drag.last.y });
        }
        drag.last = place;
        return;
      case "draw":
        this.extend(drag, event, this.within(point));
        if (this.hasMoved) this.layer.drawDraft(drawn(drag.tool, drag.stroke));
        return;
      case "move":
      case "resize":
        if (this.hasMoved) this.layer.hold({ id: drag.id, shape: dragged(drag, point) });
    }
  }

  private extend(drag: Extract<Drag, { does: "draw" }>, event: PointerEvent, point: Place): void {
    if (drag.tool !== "polyline") {
      drag.stroke = [drag.stroke[0]!, point];
      return;
    }
    // The browser gathers moves between frames; a freehand line wants all of them.
    const gathered = event.getCoalescedEvents?.() ?? [];
    const points =
      gathered.length > 0 ? gathered.map((e) => this.within(this.viewer.imagePoint(e))) : [point];
    if (drag.stroke.length + points.length <= MAX_POINTS * 4) drag.stroke.push(...points);
  }

  private up(event: PointerEvent): void {
    // Another picture or frame may be under the pointer: a mark begun on one never lands on another.
    if (this.viewer.shown !== this.startedOn) this.abandon();
    const { drag } = this;
    const wasOnly = this.pointers.size === 1 && this.pointers.delete(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!wasOnly || drag === null) return;
    this.drag = null;
    const point = this.viewer.imagePoint(event);
    this.layer.drawDraft(null);
    switch (drag.does) {
      case "pan":
      case "window":
        if (!this.hasMoved) this.select(drag.hit);
        return;
      case "draw":
        this.finish(drag, this.within(point));
        return;
      case "move":
      case "resize":
        if (this.hasMoved) this.news.shapeChanged(drag.id, dragged(drag, point));
        this.layer.hold(null);
    }
  }

  private finish(drag: Extract<Drag, { does: "draw" }>, point: Place): void {
    if (!this.hasMoved && drag.tool !== "point") {
      this.select(drag.hit);
      return;
    }
    drag.stroke = drag.tool === "polyline" ? [...drag.stroke, point] : [drag.stroke[0]!, point];
    const shape = drawn(drag.tool, drag.stroke);
    if (shape !== null) this.news.shapeDrawn(shape);
  }

  /** The nearest place on the picture: what is drawn does not reach beyond it. */
  private within({ x, y }: Place): Place {
    const { width, height } = this.viewer.size ?? { width: 0, height: 0 };
    return { x: Math.min(Math.max(x, 0), width), y: Math.min(Math.max(y, 0), height) };
  }

  private pinch(pointer: number, place: Place): void {
    const [other] = [...this.pointers].filter(([id]) => id !== pointer).map(([, at]) => at);
    const before = this.pointers.get(pointer)!;
    this.pointers.set(pointer, place);
    if (other === undefined) return;
    const spread = (at: Place): number => Math.max(Math.hypot(at.x - other.x, at.y - other.y), 1);
    const middle = { x: (place.x + other.x) / 2, y: (place.y + other.y) / 2 };
    this.viewer.panBy({ x: (place.x - before.x) / 2, y: (place.y - before.y) / 2 });
    this.viewer.zoomBy(spread(place) / spread(before), middle);
  }

  private cancel(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    this.abandon();
  }

  private abandon(): void {
    this.drag = null;
    this.layer.drawDraft(null);
    this.layer.hold(null);
  }

  private keyed(event: KeyboardEvent): void {
    if (event.key === " " && event.target === this.viewer.root) {
      this.isSpaceHeld = true;
      event.preventDefault();
    } else if (event.key === "Escape") {
      this.abandon();
      this.select(null);
    } else if ((event.key === "Enter" || event.key === " ") && event.target instanceof Element) {
      const id = event.target.closest("g[data-id]")?.getAttribute("data-id");
      if (!id) return;
      // Else the same press would reach the field that the focus goes to.
      event.preventDefault();
      this.select(id);
      this.news.markOpened();
    }
  }

  private select(id: string | null): void {
    if (id === this.layer.selected) return;
    this.layer.select(id);
    this.news.selectionChanged();
  }
}

function dragged(drag: Extract<Drag, { does: "move" | "resize" }>, point: Place): Shape {
  const by = { x: point.x - drag.from.x, y: point.y - drag.from.y };
  return drag.does === "move" ? moved(drag.shape, by) : resized(drag.shape, drag.corner, by);
}
