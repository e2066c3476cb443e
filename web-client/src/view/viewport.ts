/**
 * Where a picture lies in the window onto it.
 *
 *     window point (CSS px) = offset + scale × image point (image px)
 *
 * Only CSS pixels appear here: device pixels, and so the screen's pixel ratio and the browser's
 * own zoom, are the browser's business and cancel out.
 */

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Place {
  readonly x: number;
  readonly y: number;
}

export interface Viewport {
  readonly scale: number;
  readonly x: number;
  readonly y: number;
}

export interface Box extends Place, Size {}

/** Screen pixels an image pixel may fill at most. */
const MAX_SCALE = 40;
/** The fraction of the fitted size to which a picture may shrink. */
const MIN_FIT = 0.5;
const MARGIN = 12;

/** The whole picture, centred, no larger than four screen pixels an image pixel. */
export function fit(window: Size, image: Size): Viewport {
  const scale = Math.min(
    Math.max(1, window.width - 2 * MARGIN) / image.width,
    Math.max(1, window.height - 2 * MARGIN) / image.height,
    4,
  );
  return {
    scale,
    x: (window.width - image.width * scale) / 2,
    y: (window.height - image.height * scale) / 2,
  };
}

export function toImage(viewport: Viewport, point: Place): Place {
  return {
    x: (point.x - viewport.x) / viewport.scale,
    y: (point.y - viewport.y) / viewport.scale,
  };
}

export function toWindow(viewport: Viewport, point: Place): Place {
  return {
    x: viewport.x + point.x * viewport.scale,
    y: viewport.y + point.y * viewport.scale,
  };
}

/** Change the scale by `factor` so that the image point under `anchor` stays where it is. */
export function zoom(
  viewport: Viewport,
  anchor: Place,
  factor: number,
  window: Size,
  image: Size,
): Viewport {
  const smallest = fit(window, image).scale * MIN_FIT;
  const scale = Math.min(Math.max(viewport.scale * factor, smallest), MAX_SCALE);
  const held = toImage(viewport, anchor);
  const moved = { scale, x: anchor.x - held.x * scale, y: anchor.y - held.y * scale };
  return contain(moved, window, image);
}

export function pan(viewport: Viewport, by: Place, window: Size, image: Size): Viewport {
  const moved = { ...viewport, x: viewport.x + by.x, y: viewport.y + by.y };
  return contain(moved, window, image);
}

/** Bring a box of the picture to the middle, zoomed in until it is well readable. */
export function reveal(viewport: Viewport, box: Box, window: Size, image: Size): Viewport {
  const room = Math.min(
    (window.width * 0.6) / Math.max(box.width, 1),
    (window.height * 0.6) / Math.max(box.height, 1),
  );
  const fitted = fit(window, image).scale;
  const scale = Math.min(Math.max(viewport.scale, fitted), Math.max(room, fitted), MAX_SCALE);
  const x = window.width / 2 - (box.x + box.width / 2) * scale;
  const y = window.height / 2 - (box.y + box.height / 2) * scale;
  return contain({ scale, x, y }, window, image);
}

/** Keep at least a part of the picture within the window. */
function contain(viewport: Viewport, window: Size, image: Size): Viewport {
  const keep = 48;
  const width = image.width * viewport.scale;
  const height = image.height * viewport.scale;
  return {
    scale: viewport.scale,
    x: Math.min(Math.max(viewport.x, keep - width), window.width - keep),
    y: Math.min(Math.max(viewport.y, keep - height), window.height - keep),
  };
}

/** The SVG `viewBox` that makes image pixels the user units of an overlay over the window. */
export function viewBox(viewport: Viewport, window: Size): string {
  const { x, y } = toImage(viewport, { x: 0, y: 0 });
  return `${x} ${y} ${window.width / viewport.scale} ${window.height / viewport.scale}`;
}
