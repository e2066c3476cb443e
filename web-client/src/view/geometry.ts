/** Shapes in image pixels: bounds, movement, resizing, and the path that draws them. */

import type { Point, Shape } from "../protocol/types.gen";
import type { Box, Place } from "./viewport";

export type DrawTool = "rectangle" | "ellipse" | "point" | "polyline";
export type Corner = "nw" | "ne" | "sw" | "se";

export const CORNERS: readonly Corner[] = ["nw", "ne", "se", "sw"];
/** The protocol's limit of a line's points. */
export const MAX_POINTS = 5_000;

export function bounds(shape: Shape): Box {
  switch (shape.type) {
    case "rectangle":
    case "ellipse":
      return { x: shape.x, y: shape.y, width: shape.width, height: shape.height };
    case "point":
      return { x: shape.x, y: shape.y, width: 0, height: 0 };
    case "polyline":
    case "polygon": {
      const xs = shape.points.map(([x]) => x);
      const ys = shape.points.map(([, y]) => y);
      const x = xs.reduce((a, b) => Math.min(a, b), Infinity);
      const y = ys.reduce((a, b) => Math.min(a, b), Infinity);
      const right = xs.reduce((a, b) => Math.max(a, b), -Infinity);
      const bottom = ys.reduce((a, b) => Math.max(a, b), -Infinity);
      return { x, y, width: right - x, height: bottom - y };
    }
  }
}

/** The rectangle between two opposite corners, whichever way it was drawn. */
export function spanned(a: Place, b: Place): Box {
  return {
    x: Math.min(a.x, b.x),
    y: Math.min(a.y, b.y),
    width: Math.abs(a.x - b.x),
    height: Math.abs(a.y - b.y),
  };
}

/** What a tool makes of a stroke; null while the stroke is too short to be anything. */
export function drawn(tool: DrawTool, stroke: readonly Place[]): Shape | null {
  const first = stroke[0];
  const last = stroke.at(-1);
  if (first === undefined || last === undefined) return null;
  if (tool === "point") return { type: "point", x: last.x, y: last.y };
  if (stroke.length < 2) return null;
  if (tool === "polyline") return { type: "polyline", points: thinned(stroke) };
  return { type: tool, ...spanned(first, last) };
}

export function moved(shape: Shape, by: Place): Shape {
  switch (shape.type) {
    case "rectangle":
    case "ellipse":
    case "point":
      return { ...shape, x: shape.x + by.x, y: shape.y + by.y };
    case "polyline":
    case "polygon":
      return { ...shape, points: shape.points.map(([x, y]): Point => [x + by.x, y + by.y]) };
  }
}

/** Move one corner of an upright shape by so much, the opposite corner staying where it is. */
export function resized(shape: Shape, corner: Corner, by: Place): Shape {
  if (shape.type !== "rectangle" && shape.type !== "ellipse") return shape;
  const { x, y, width, height } = shape;
  const fixed = {
    x: corner === "nw" || corner === "sw" ? x + width : x,
    y: corner === "nw" || corner === "ne" ? y + height : y,
  };
  const handle = cornerOf(shape, corner);
  return { ...shape, ...spanned(fixed, { x: handle.x + by.x, y: handle.y + by.y }) };
}

/** A rectangle with so much more on each side; other shapes stay as they are. */
export function grown(shape: Shape, margin: number): Shape {
  if (shape.type !== "rectangle") return shape;
  const { x, y, width, height } = shape;
  return {
    type: "rectangle",
    x: x - margin,
    y: y - margin,
    width: width + 2 * margin,
    height: height + 2 * margin,
  };
}

export function cornerOf(box: Box, corner: Corner): Place {
  return {
    x: corner === "nw" || corner === "sw" ? box.x : box.x + box.width,
    y: corner === "nw" || corner === "ne" ? box.y : box.y + box.height,
  };
}

/** The path data of a shape. A point is a ring of `pointRadius` image pixels. */
export function path(shape: Shape, pointRadius: number): string {
  switch (shape.type) {
    case "rectangle": {
      const { x, y, width, height } = shape;
      return `M${x} ${y}h${width}v${height}h${-width}Z`;
    }
    case "ellipse": {
      const { x, y, width, height } = shape;
      return oval(x, y + height / 2, width / 2, height / 2);
    }
    case "point":
      return oval(shape.x - pointRadius, shape.y, pointRadius, pointRadius);
    case "polyline":
    case "polygon": {
      const line = shape.points.map(([x, y]) => `${x} ${y}`).join("L");
      return `M${line}${shape.type === "polygon" ? "Z" : ""}`;
    }
  }
}

function oval(left: number, middle: number, rx: number, ry: number): string {
  return `M${left} ${middle}a${rx} ${ry} 0 1 0 ${2 * rx} 0a${rx} ${ry} 0 1 0 ${-2 * rx} 0Z`;
}

function thinned(stroke: readonly Place[]): Point[] {
  const step = Math.ceil(stroke.length / MAX_POINTS);
  const kept = stroke.filter((_, index) => index % step === 0 || index === stroke.length - 1);
  return kept.slice(-MAX_POINTS).map(({ x, y }): Point => [x, y]);
}
