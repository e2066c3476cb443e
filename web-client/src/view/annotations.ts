/** Marks over a picture: an SVG in image pixels for the shapes, HTML for their names. */

import type { Mark } from "../protocol/room";
import type { LabRow, Shape } from "../protocol/types.gen";
import { KeyedChildren, element, setAttributes, setText, svgElement } from "./dom";
import { CORNERS, bounds, cornerOf, grown, path } from "./geometry";
import { placeOfName } from "./names";
import type { Viewer } from "./viewer";
import type { Box } from "./viewport";

/** A mark to draw; `pending` while the log has not confirmed it. */
export interface DrawnMark {
  readonly mark: Mark;
  readonly pending: boolean;
  /** What the sheet's row says, of a mark that reading the sheet made. */
  readonly flag?: LabRow["flag"] | null;
}

const POINT_RADIUS_PX = 7;
const HANDLE_PX = 10;
const FINGER_HANDLE_PX = 20;
const SPOT_MARGIN_PX = 4;
const RING_MARGIN_PX = 6;
/** The boxes of what was read hug its ink; a line that close would cover it. */
const READ_MARGIN_PX = 2;

export class AnnotationLayer {
  selected: string | null = null;

  private marks: readonly DrawnMark[] = [];
  private held: { id: string; shape: Shape } | null = null;
  private readonly groups: KeyedChildren<DrawnMark, SVGGElement>;
  private readonly names: KeyedChildren<DrawnMark, HTMLElement>;
  private readonly spot = svgElement("path", { class: "spot" });
  private readonly draft = svgElement("path", { class: "draft" });
  /** Around the focused mark and not over what it marks; dark and light, for any picture. */
  private readonly rings = ["dark", "light"].map((kind) =>
    svgElement("path", { class: `ring ${kind}` }),
  );
  private readonly handles = svgElement("g", { class: "handles" });

  private readonly handlePx: number;

  constructor(
    private readonly viewer: Viewer,
    overlay: SVGSVGElement,
    private readonly labels: HTMLElement,
  ) {
    const isTouched = matchMedia("(pointer: coarse)").matches;
    this.handlePx = isTouched ? FINGER_HANDLE_PX : HANDLE_PX;
    const group = svgElement("g");
    overlay.append(this.spot, group, ...this.rings, this.handles, this.draft);
    for (const type of ["focusin", "focusout"]) {
      overlay.addEventListener(type, () => requestAnimationFrame(() => this.drawRings()));
    }
    this.groups = new KeyedChildren<DrawnMark, SVGGElement>(group, newGroup, (g, drawn) =>
      this.drawMark(g, drawn),
    );
    this.names = new KeyedChildren<DrawnMark, HTMLElement>(labels, newLabel, drawLabel);
    viewer.watch(() => this.viewportChanged());
  }

  /** Draw these marks, leaving alone what somebody here is dragging. */
  render(marks: readonly DrawnMark[]): void {
    const known = new Map(this.marks.map((drawn) => [drawn.mark, drawn]));
    this.marks = marks.map((drawn) => {
      const before = known.get(drawn.mark);
      const isSame = before?.pending === drawn.pending && before.flag === drawn.flag;
      return isSame ? before : drawn;
    });
    if (!marks.some(({ mark }) => mark.annotation.id === this.selected)) this.selected = null;
    this.draw();
  }

  shapeOf(id: string): Shape | null {
    return this.find(id)?.mark.annotation.shape ?? null;
  }

  find(id: string | null): DrawnMark | null {
    return this.marks.find(({ mark }) => mark.annotation.id === id) ?? null;
  }

  select(id: string | null): void {
    this.selected = id;
    this.draw();
  }

  /** Show a mark elsewhere while it is dragged; null lets the room's state show again. */
  hold(held: { id: string; shape: Shape } | null): void {
    this.held = held;
    this.draw();
  }

  drawDraft(shape: Shape | null): void {
    setAttributes(this.draft, { d: shape === null ? null : path(shape, this.pointRadius()) });
  }

  /** Light up a place of the picture; null puts the light out. */
  highlight(box: Box | null): void {
    if (box === null) {
      setAttributes(this.spot, { d: null });
      return;
    }
    const place = { ...box, type: "rectangle" } as const;
    setAttributes(this.spot, {
      d: path(grown(place, SPOT_MARGIN_PX / this.viewer.viewport.scale), 0),
    });
  }

  private pointRadius(): number {
    return POINT_RADIUS_PX / this.viewer.viewport.scale;
  }

  private draw(): void {
    const drawn = this.marks.map((entry): readonly [string, DrawnMark] => {
      const { id } = entry.mark.annotation;
      if (this.held?.id !== id) return [id, entry];
      const annotation = { ...entry.mark.annotation, shape: this.held.shape };
      return [id, { ...entry, mark: { ...entry.mark, annotation } }];
    });
    this.groups.render(drawn);
    this.names.render(drawn.filter(([, { mark }]) => (mark.annotation.label ?? "") !== ""));
    for (const [id] of drawn) {
      this.groups.get(id)?.classList.toggle("selected", id === this.selected);
    }
    this.viewportChanged();
  }

  private drawMark(group: SVGGElement, drawn: DrawnMark): void {
    const { mark, pending } = drawn;
    const { annotation, by } = mark;
    const box = bounds(annotation.shape);
    const kind = by.kind ?? "person";
    const label = annotation.label ?? "";
    setAttributes(group, {
      class: `mark ${annotation.shape.type} ${annotation.severity ?? "note"}`,
      "data-actor-kind": kind,
      "data-flag": drawn.flag ?? null,
      "data-pending": pending ? "true" : null,
      "data-x": box.x,
      "data-y": box.y,
      "data-width": box.width,
      "data-height": box.height,
      "aria-label": `${label || annotation.shape.type}. ${originOf(drawn)}${pending ? ", not saved yet" : ""}`,
    });
    this.drawPaths(group, mark, annotation.shape);
  }

  private drawPaths(group: SVGGElement, mark: Mark, shape: Shape): void {
    const { scale } = this.viewer.viewport;
    const shown = hasMargin(mark) ? grown(shape, READ_MARGIN_PX / scale) : shape;
    const d = path(shown, this.pointRadius());
    for (const line of group.children) setAttributes(line, { d });
  }

  /** What has a fixed size on the screen has another one in image pixels now. */
  private viewportChanged(): void {
    const { viewport, size } = this.viewer;
    this.labels.hidden = size === null;
    for (const { mark } of this.marks) {
      const { id, shape: own } = mark.annotation;
      const shape = this.held?.id === id ? this.held.shape : own;
      const group = this.groups.get(id);
      if (group && (shape.type === "point" || hasMargin(mark))) this.drawPaths(group, mark, shape);
      const name = this.names.get(id);
      if (name === undefined) continue;
      this.placeName(name, shape, id === this.selected);
    }
    this.drawHandles(this.handlePx / viewport.scale);
    this.drawRings();
  }

  private drawRings(): void {
    const focused = document.activeElement?.closest("g[data-id]:focus-visible");
    const shape = this.shapeOf(focused?.getAttribute("data-id") ?? "");
    const margin = RING_MARGIN_PX / this.viewer.viewport.scale;
    const d = shape === null ? null : path(grown(shape, margin), this.pointRadius() + margin);
    for (const ring of this.rings) setAttributes(ring, { d });
  }

  private placeName(name: HTMLElement, shape: Shape, isSelected: boolean): void {
    const box = bounds(shape);
    const rise = shape.type === "point" ? this.pointRadius() : 0;
    const { x, y } = this.viewer.place({ x: box.x, y: box.y - rise });
    const end = this.viewer.place({ x: box.x + box.width, y: box.y + box.height + rise });
    const shown = { x, y, width: end.x - x, height: end.y - y };
    const at = placeOfName(shown, this.viewer.window, isSelected);
    name.classList.toggle("short", at.isShort);
    name.style.maxWidth = at.isShort ? "" : `${at.maxWidth}px`;
    name.style.transform = `translate(${at.x}px, ${at.y}px)`;
  }

  private drawHandles(size: number): void {
    const selected = this.find(this.selected)?.mark.annotation;
    const shape = this.held?.id === selected?.id ? this.held?.shape : selected?.shape;
    if (shape === undefined || (shape.type !== "rectangle" && shape.type !== "ellipse")) {
      this.handles.replaceChildren();
      return;
    }
    while (this.handles.childElementCount < CORNERS.length) {
      this.handles.append(svgElement("rect", { class: "handle" }));
    }
    for (const [index, corner] of CORNERS.entries()) {
      const { x, y } = cornerOf(shape, corner);
      setAttributes(this.handles.children[index]!, {
        "data-corner": corner,
        x: x - size / 2,
        y: y - size / 2,
        width: size,
        height: size,
      });
    }
  }
}

function hasMargin({ by, annotation }: Mark): boolean {
  return by.kind === "model" && annotation.shape.type === "rectangle";
}

function newGroup(id: string): SVGGElement {
  const group = svgElement("g", {
    "data-testid": "annotation",
    "data-id": id,
    "data-mark": id,
    tabindex: 0,
    role: "button",
  });
  // The halo keeps a line visible on any picture; the wide one is what a pointer meets.
  group.append(
    svgElement("path", { class: "halo" }),
    svgElement("path", { class: "line" }),
    svgElement("path", { class: "touch" }),
  );
  return group;
}

function newLabel(id: string): HTMLElement {
  return element("div", { class: "label", "data-mark": id }, element("span"));
}

/** Who made a mark; a flag comes from reading the sheet, and never from the language model. */
export function originOf({ mark, flag }: DrawnMark): string {
  const { annotation, by } = mark;
  if (by.kind !== "model") return by.department ? `${by.name}, ${by.department}` : by.name;
  if (annotation.severity !== "critical") return "Read from the sheet; out of its range";
  const far = flag === "low" ? "less than half the limit" : "more than twice the limit";
  return `Read from the sheet; out of its range, ${far}`;
}

function drawLabel(label: HTMLElement, drawn: DrawnMark): void {
  const { mark, pending } = drawn;
  const { annotation, by } = mark;
  const text = annotation.label ?? "";
  setAttributes(label, {
    class: `label ${annotation.severity ?? "note"}`,
    "data-actor-kind": by.kind ?? "person",
    "data-flag": drawn.flag ?? null,
    "data-pending": pending ? "true" : null,
    title: `${text} (${originOf(drawn)})`,
  });
  setText(label.firstElementChild!, text);
}
