/** The values of lab sheets, a row at a time as they are read. */

import type { Asset, RoomState } from "../protocol/room";
import type { LabRow, ObservedRow } from "../protocol/types.gen";
import { KeyedChildren, element, setAttributes, setText } from "./dom";
import type { Spot } from "./pictures";

export interface LabTableNews {
  rowHovered(place: Spot | null): void;
  rowChosen(place: Spot): void;
}

interface Entry {
  readonly row: LabRow;
  readonly asset: string;
}

/** A line of the table: a value, or the name of the sheet that the next values are from. */
type Line = Entry | { readonly sheet: string };

const FLAGS: Record<LabRow["flag"], { mark: string; words: string }> = {
  low: { mark: "L ↓", words: "below the reference range" },
  high: { mark: "H ↑", words: "above the reference range" },
  abnormal: { mark: "A !", words: "abnormal" },
  normal: { mark: "", words: "within the reference range" },
  unknown: { mark: "?", words: "no reference range" },
};

const DOUBTS: Record<NonNullable<LabRow["doubt"]>, string> = {
  separator: "the mark in the number may be a decimal point or part thousands",
  value: "the value is not understood",
  range: "the reference range is not understood",
  unit: "the unit is not certain, or the range has another one",
  mark: "the sheet prints another flag",
  reading: "the value was read in two ways",
};

const isLab = (row: ObservedRow): row is LabRow => row.type === "lab";

export const isOutOfRange = ({ flag }: LabRow): boolean =>
  flag === "low" || flag === "high" || flag === "abnormal";

export class LabTable {
  private readonly rows: KeyedChildren<Line, HTMLElement>;
  private readonly entries = new Map<string, Entry>();
  private assets: ReadonlyMap<string, Asset> | null = null;

  constructor(
    private readonly body: HTMLElement,
    private readonly count: HTMLElement,
    private readonly empty: HTMLElement,
    private readonly news: LabTableNews,
  ) {
    this.rows = new KeyedChildren<Line, HTMLElement>(body, newRow, drawLine);
    const placeOf = (event: Event): Spot | null => {
      const row = event.target instanceof Element ? event.target.closest("tr") : null;
      const entry = this.entries.get(row?.dataset["key"] ?? "");
      return entry === undefined
        ? null
        : { asset: entry.asset, box: entry.row.box, observation: entry.row.id };
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
    const lines = new Map<string, Line>();
    const sheets = [...room.assets.values()].filter(({ rows }) => rows.some(isLab));
    this.entries.clear();
    for (const { asset, name, rows } of sheets) {
      if (sheets.length > 1) lines.set(`sheet ${asset}`, { sheet: name });
      for (const row of rows.filter(isLab)) {
        const key = `${asset} ${row.id}`;
        const before = known.get(key);
        const entry = before?.row === row ? before : { row, asset };
        this.entries.set(key, entry);
        lines.set(key, entry);
      }
    }
    this.rows.render(lines);
    const flagged = [...this.entries.values()].filter(({ row }) => isOutOfRange(row)).length;
    const total = this.entries.size;
    setText(this.count, total === 0 ? "" : `${total} read, ${flagged} out of range`);
    this.empty.hidden = total > 0;
    this.body.parentElement!.hidden = total === 0;
  }

  private choose(place: Spot | null): void {
    if (place !== null) this.news.rowChosen(place);
  }
}

function newRow(key: string): HTMLElement {
  if (key.startsWith("sheet ")) {
    const name = element("th", { colspan: 5, scope: "colgroup" });
    return element("tr", { class: "sheet" }, name);
  }
  const row = element("tr", { "data-testid": "lab-row", "data-key": key, tabindex: 0 });
  row.append(element("th", { scope: "row" }), ...[1, 2, 3, 4].map(() => element("td")));
  return row;
}

function drawLine(target: HTMLElement, line: Line): void {
  if ("sheet" in line) setText(target.firstElementChild!, line.sheet);
  else drawRow(target, line.row);
}

function drawRow(target: HTMLElement, row: LabRow): void {
  const { mark, words: flagged } = FLAGS[row.flag];
  const doubt = row.doubt ? DOUBTS[row.doubt] : null;
  const isOpen = doubt !== null && row.flag === "unknown";
  const words = doubt === null ? flagged : isOpen ? doubt : `${flagged}, but ${doubt}`;
  setAttributes(target, { "data-flag": row.flag, title: `${row.analyte}: ${words}` });
  const texts = [row.analyte, row.value, row.unit, row.range, mark];
  for (const [index, text] of texts.entries()) {
    setText(target.children[index]!, text);
    setAttributes(target.children[index]!, { title: index < 4 ? text || null : words });
  }
}
