/** The values of lab sheets, a row at a time as they are read. */

import type { Asset, RoomState } from "../protocol/room";
import type { LabRow } from "../protocol/types.gen";
import { KeyedChildren, element, setAttributes, setText } from "./dom";
import type { Box } from "./viewport";

export interface LabTableNews {
  rowHovered(place: { asset: string; box: Box } | null): void;
  rowChosen(place: { asset: string; box: Box }): void;
}

interface Entry {
  readonly row: LabRow;
  readonly asset: string;
}

const FLAGS: Record<LabRow["flag"], { mark: string; words: string }> = {
  low: { mark: "L ↓", words: "below the reference range" },
  high: { mark: "H ↑", words: "above the reference range" },
  abnormal: { mark: "A !", words: "abnormal" },
  normal: { mark: "", words: "within the reference range" },
  unknown: { mark: "?", words: "no reference range" },
};

export const isOutOfRange = ({ flag }: LabRow): boolean =>
  flag === "low" || flag === "high" || flag === "abnormal";

export class LabTable {
  private readonly rows: KeyedChildren<Entry, HTMLElement>;
  private readonly entries = new Map<string, Entry>();
  private assets: ReadonlyMap<string, Asset> | null = null;

  constructor(
    private readonly body: HTMLElement,
    private readonly count: HTMLElement,
    private readonly empty: HTMLElement,
    private readonly news: LabTableNews,
  ) {
    this.rows = new KeyedChildren<Entry, HTMLElement>(body, newRow, drawRow);
    const placeOf = (event: Event): { asset: string; box: Box } | null => {
      const row = event.target instanceof Element ? event.target.closest("tr") : null;
      const entry = this.entries.get(row?.dataset["key"] ?? "");
      return entry === undefined ? null : { asset: entry.asset, box: entry.row.box };
    };
    for (const type of ["pointerover", "focusin"]) {
      body.addEventListener(type, (event) => news.rowHovered(placeOf(event)));
    }
    for (const type of ["pointerleave", "focusout"]) {
      body.addEventListener(type, () => news.rowHovered(null));
    }
    body.addEventListener("click", (event) => this.choose(placeOf(event)));
    body.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.choose(placeOf(event));
      }
    });
  }

  render(room: RoomState): void {
    if (room.assets === this.assets) return;
    this.assets = room.assets;
    const known = new Map(this.entries);
    this.entries.clear();
    for (const asset of room.assets.values()) {
      for (const row of asset.rows) {
        if (row.type !== "lab") continue;
        const key = `${asset.asset} ${row.id}`;
        const before = known.get(key);
        this.entries.set(key, before?.row === row ? before : { row, asset: asset.asset });
      }
    }
    this.rows.render(this.entries);
    const flagged = [...this.entries.values()].filter(({ row }) => isOutOfRange(row)).length;
    const total = this.entries.size;
    setText(this.count, total === 0 ? "" : `${total} read, ${flagged} out of range`);
    this.empty.hidden = total > 0;
    this.body.parentElement!.hidden = total === 0;
  }

  private choose(place: { asset: string; box: Box } | null): void {
    if (place !== null) this.news.rowChosen(place);
  }
}

function newRow(key: string): HTMLElement {
  const row = element("tr", { "data-testid": "lab-row", "data-key": key, tabindex: 0 });
  row.append(element("th", { scope: "row" }), ...[1, 2, 3, 4].map(() => element("td")));
  return row;
}

function drawRow(target: HTMLElement, { row }: Entry): void {
  const { mark, words } = FLAGS[row.flag];
  setAttributes(target, { "data-flag": row.flag, title: `${row.analyte}: ${words}` });
  const texts = [row.analyte, row.value, row.unit, row.range, mark];
  for (const [index, text] of texts.entries()) {
    setText(target.children[index]!, text);
    setAttributes(target.children[index]!, { title: index < 4 ? text || null : words });
  }
}
