/** An answer cut into the parts that look different, and their elements. */

import type { Span, SpanLink } from "../protocol/types.gen";
import { element, setAttributes, setText } from "./dom";

export interface Part {
  readonly text: string;
  readonly kind: Span["kind"] | null;
  readonly link: SpanLink | null;
}

/** Between a value and its unit there is at most this many characters. */
const UNIT_GAP = 1;

/** Offsets are in code points, as on the wire; JavaScript's strings count UTF-16 units. */
export function parts(text: string, spans: readonly Span[], links: readonly SpanLink[]): Part[] {
  const points = [...text];
  const shown = spans.filter((span) => isRead(span, spans, links));
  const cuts = new Set([0, points.length]);
  for (const { start, end } of [...shown, ...links]) {
    cuts.add(clamp(start, points.length));
    cuts.add(clamp(end, points.length));
  }
  const sorted = [...cuts].sort((a, b) => a - b);
  return sorted.slice(0, -1).map((start, index) => {
    const end = sorted[index + 1]!;
    const over = (range: { start: number; end: number }): boolean =>
      range.start <= start && range.end >= end;
    const kinds = shown.filter(over).map(({ kind }) => kind);
    const kind = kinds.includes("out_of_range") ? "out_of_range" : (kinds[0] ?? null);
    return { text: points.slice(start, end).join(""), kind, link: links.find(over) ?? null };
  });
}

/**
 * Whether a part may look like something that was read. A number that no row stands behind may be
 * invented: it looks like any other word. A unit counts with the number that it follows.
 */
function isRead(span: Span, spans: readonly Span[], links: readonly SpanLink[]): boolean {
  const isLinked = links.some(({ start, end }) => start < span.end && end > span.start);
  if (isLinked || span.kind === "out_of_range" || span.kind === "entity") return true;
  if (span.kind === "number") return false;
  const number = spans.find(
    ({ kind, end }) =>
      (kind === "number" || kind === "out_of_range") &&
      end <= span.start &&
      span.start - end <= UNIT_GAP,
  );
  return number !== undefined && isRead(number, spans, links);
}

const clamp = (offset: number, length: number): number => Math.min(Math.max(offset, 0), length);

const shownLinks = new WeakMap<Element, SpanLink>();

/** The place that a part of an answer speaks of, if it is tied to one. */
export const linkOf = (target: EventTarget | null): SpanLink | null => {
  const part = target instanceof Element ? target.closest(".part") : null;
  return part === null ? null : (shownLinks.get(part) ?? null);
};

/** Show the parts in `parent`, touching only those that changed: a selection in it survives. */
export function renderParts(parent: Element, shown: readonly Part[]): void {
  for (const [index, part] of shown.entries()) {
    let child = parent.children[index];
    if (child === undefined) parent.append((child = element("span", { class: "part" })));
    setText(child, part.text);
    setAttributes(child, {
      "data-testid": part.kind !== null || part.link !== null ? "span" : null,
      "data-kind": part.kind ?? (part.link === null ? null : "entity"),
      class: `part${part.link === null ? "" : " linked"}`,
      tabindex: part.link === null ? null : 0,
      role: part.link === null ? null : "button",
      title: titleOf(part),
    });
    if (part.link === null) shownLinks.delete(child);
    else shownLinks.set(child, part.link);
  }
  while (parent.children.length > shown.length) parent.lastElementChild!.remove();
}

function titleOf(part: Part): string | null {
  if (part.kind === "out_of_range") return "Out of the reference range";
  return part.link === null ? null : "Show where this was read";
}
