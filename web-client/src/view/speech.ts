/** What is said in the room, by who says it, as it is written down. */

import type { Asset, RoomState } from "../protocol/room";
import type { SpeechRow } from "../protocol/types.gen";
import { KeyedChildren, element, setAttributes, setText } from "./dom";

/** Of a long recording the end is shown; the whole is in the room's state and the log. */
const MAX_LINES = 200;

export const speechOf = (asset: Asset): SpeechRow[] =>
  asset.rows.filter((row): row is SpeechRow => row.type === "speech");

export const isRecording = (asset: Asset): boolean =>
  asset.kind === "microphone" || asset.media_type.startsWith("audio/");

export const isVideo = (asset: Asset): boolean => asset.media_type.startsWith("video/");

/** "1:05" for 65 seconds. */
export function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export class SpeechList {
  private readonly entries: KeyedChildren<Asset, HTMLElement>;

  constructor(list: HTMLElement) {
    this.entries = new KeyedChildren<Asset, HTMLElement>(list, newEntry, drawEntry);
  }

  render(room: RoomState): void {
    const said = [...room.assets.values()].filter((asset) => speechOf(asset).length > 0);
    this.entries.render(said.map((asset): [string, Asset] => [asset.asset, asset]));
  }
}

function newEntry(): HTMLElement {
  return element(
    "li",
    { class: "entry speech", "data-testid": "speech" },
    element("p", { class: "byline" }, element("b"), element("span"), element("i")),
    element("div", { class: "lines" }),
  );
}

function drawEntry(item: HTMLElement, asset: Asset): void {
  setAttributes(item, { "data-asset": asset.asset, "data-status": asset.status });
  const [name, department, state] = item.querySelector(".byline")!.children;
  const isOpen = asset.status === "open";
  setText(name!, asset.kind === "microphone" ? asset.by.name : asset.name);
  setText(department!, asset.kind === "microphone" ? (asset.by.department ?? "") : asset.by.name);
  setText(state!, isOpen ? "speaking…" : duration(asset.duration_s));
  const rows = speechOf(asset).slice(-MAX_LINES);
  const lines = item.querySelector(".lines")!;
  while (lines.childElementCount > rows.length) lines.lastElementChild!.remove();
  for (const [index, row] of rows.entries()) {
    const line =
      lines.children[index] ??
      lines.appendChild(element("p", { class: "said", "data-testid": "transcript-line" }));
    setAttributes(line, {
      "data-final": String(row.final ?? true),
      title: `${duration(row.start)} – ${duration(row.end)}`,
    });
    setText(line, row.text);
  }
}
