/** Where the name of a mark lies in the window: beside or above it, and never cut off by an edge. */

import type { Box, Place, Size } from "./viewport";

/** What a name takes: its line, the width it needs beside a mark, its widths cut short and whole. */
const LINE_PX = 18;
const BESIDE_PX = 150;
const SHORT_PX = 34;
const MAX_WIDTH_PX = 240;
const GAP_PX = 3;

export interface NamePlace extends Place {
  readonly maxWidth: number;
  /** A few letters only: there is no room for more. */
  readonly isShort: boolean;
}

/** Beside a flat box, so that the line above a row of text stays readable; above any other. */
export function placeOfName(box: Box, window: Size, isSelected: boolean): NamePlace {
  const right = box.x + box.width;
  const bottom = box.y + box.height;
  const beside = window.width - right;
  const isFlat = box.width > 3 * box.height && box.height > 0;
  const isShort = isFlat && !isSelected && beside < BESIDE_PX;
  const isSeen = right > 0 && box.x < window.width && bottom > 0 && box.y < window.height;
  // The name of a mark that is out of sight stays out of sight with it.
  const held = (value: number, last: number): number =>
    isSeen ? Math.max(0, Math.min(value, last)) : value;
  if (isShort || (isFlat && beside >= BESIDE_PX)) {
    const maxWidth = Math.min(Math.max(beside - 8, SHORT_PX), MAX_WIDTH_PX);
    return {
      x: held(right + GAP_PX + 1, window.width - SHORT_PX),
      y: held(box.y + box.height / 2 - LINE_PX / 2, window.height - LINE_PX),
      maxWidth,
      isShort,
    };
  }
  const above = box.y - GAP_PX - LINE_PX;
  const below = bottom + GAP_PX;
  const inside = Math.max(box.y, 0) + GAP_PX;
  const y = above >= 0 ? above : below + LINE_PX <= window.height ? below : inside;
  const x = held(box.x, window.width - Math.min(BESIDE_PX, window.width));
  return {
    x,
    y: held(y, window.height - LINE_PX),
    maxWidth: Math.max(SHORT_PX, Math.min(MAX_WIDTH_PX, window.width - x)),
    isShort: false,
  };
}
