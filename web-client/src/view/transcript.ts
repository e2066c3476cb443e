/** What was asked, answered and said, in the room's order. */

import type { Act } from "../protocol/outbox";
import type { Comment, RoomState, Turn } from "../protocol/room";
import type { Actor, SpanLink } from "../protocol/types.gen";
import { adviceFor, sentence } from "../advice";
import { KeyedChildren, element, setAttributes, setText } from "./dom";
import { linkOf, parts, renderParts } from "./answer";

export interface TranscriptNews {
  /** A linked part is looked at; null when no longer. */
  linkHovered(link: SpanLink | null): void;
  linkChosen(link: SpanLink): void;
}

type Entry =
  | { is: "turn"; turn: Turn; missing: string; sight: string }
  | { is: "comment"; comment: Comment }
  | { is: "waiting"; act: Act };

/** How near the end the reader has to be for new text to keep the end in view, in CSS px. */
const STICKY_PX = 40;

export class Transcript {
  private readonly entries: KeyedChildren<Entry, HTMLElement>;
  private readonly known = new Map<string, Entry>();
  private isAtEnd = true;

  constructor(
    private readonly scroller: HTMLElement,
    list: HTMLElement,
    private readonly empty: HTMLElement,
    news: TranscriptNews,
  ) {
    this.entries = new KeyedChildren<Entry, HTMLElement>(list, newEntry, drawEntry);
    scroller.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = scroller;
      this.isAtEnd = scrollHeight - scrollTop - clientHeight < STICKY_PX;
    });
    new ResizeObserver(() => this.stick()).observe(scroller);
    for (const type of ["pointerover", "focusin"]) {
      list.addEventListener(type, (event) => news.linkHovered(linkOf(event.target)));
    }
    for (const type of ["pointerleave", "focusout"]) {
      list.addEventListener(type, () => news.linkHovered(null));
    }
    list.addEventListener("click", (event) => {
      const link = linkOf(event.target);
      if (link !== null) news.linkChosen(link);
    });
    list.addEventListener("keydown", (event) => {
      const link = linkOf(event.target);
      if (link === null || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      news.linkChosen(link);
    });
  }

  render(room: RoomState, waiting: readonly Act[]): void {
    const numbered = [
      ...[...room.turns.values()].map((turn) => ({
        seq: turn.seq,
        key: `turn ${turn.turn}`,
        turn,
      })),
      ...[...room.comments.values()].map((comment) => ({
        seq: comment.seq,
        key: `comment ${comment.id}`,
        comment,
      })),
    ].sort((a, b) => a.seq - b.seq);
    const entries = numbered.map((item): [string, Entry] => [
      item.key,
      "turn" in item
        ? this.turnEntry(item.key, item.turn, room)
        : this.keep(item.key, { is: "comment", comment: item.comment }),
    ]);
    for (const act of waiting) {
      const key = waitingKey(act);
      if (key !== null && !entries.some(([known]) => known === key)) {
        entries.push([key, { is: "waiting", act }]);
      }
    }
    this.empty.hidden = entries.length > 0;
    this.entries.render(entries);
    this.stick();
  }

  /** Go to the end, as after one's own question. */
  scrollToEnd(): void {
    this.isAtEnd = true;
    this.stick();
  }

  private stick(): void {
    if (this.isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  private turnEntry(key: string, turn: Turn, room: RoomState): Entry {
    const missing = turn.missing.map((id) => room.assets.get(id)?.name ?? id).join(", ");
    return this.keep(key, { is: "turn", turn, missing, sight: sightText(turn, room) });
  }

  /** Hand back the entry drawn before when nothing in it changed, so that it is not drawn again. */
  private keep(key: string, entry: Entry): Entry {
    const before = this.known.get(key);
    if (before?.is === "turn" && entry.is === "turn") {
      const isSame = before.missing === entry.missing && before.sight === entry.sight;
      if (before.turn === entry.turn && isSame) return before;
    }
    if (before?.is === "comment" && entry.is === "comment") {
      if (before.comment === entry.comment) return before;
    }
    this.known.set(key, entry);
    return entry;
  }
}

function waitingKey(act: Act): string | null {
  if (act.type === "ask") return `turn ${act.turn}`;
  return act.op.type === "comment.add" ? `comment ${act.op.id}` : null;
}

function newEntry(key: string): HTMLElement {
  if (key.startsWith("comment")) {
    return element(
      "li",
      { class: "entry comment", "data-testid": "comment" },
      element("p", { class: "byline" }, element("b"), element("span"), element("i")),
      element("p", { class: "said" }),
    );
  }
  return element(
    "li",
    { class: "entry turn", "data-testid": "turn" },
    element("p", { class: "byline" }, element("b"), element("span"), element("i")),
    element("p", { class: "question" }),
    element(
      "div",
      { class: "reply" },
      element("p", { class: "byline" }, element("b", {}, "Model"), element("span"), element("i")),
      element("p", { class: "answer", "data-testid": "turn-answer" }),
      element("p", { class: "remark" }),
      element("p", { class: "origin", "data-testid": "answer-origin" }),
    ),
  );
}

function drawEntry(item: HTMLElement, entry: Entry): void {
  if (entry.is === "waiting") drawWaiting(item, entry.act);
  else if (entry.is === "comment") {
    const { comment } = entry;
    setAttributes(item, { "data-status": "saved", "data-comment": comment.id });
    drawByline(item, comment.by, clock(comment.at));
    setText(item.querySelector(".said")!, comment.text);
  } else drawTurn(item, entry);
}

function drawWaiting(item: HTMLElement, act: Act): void {
  setAttributes(item, { "data-status": "pending" });
  const name = { id: "", name: "You", department: "" };
  drawByline(item, name, "waiting to be sent");
  if (act.type === "ask") {
    setAttributes(item, { "data-turn": act.turn });
    setText(item.querySelector(".question")!, act.text);
    setAttributes(item.querySelector(".reply")!, { hidden: true });
  } else if (act.op.type === "comment.add") setText(item.querySelector(".said")!, act.op.text);
}

function drawTurn(
  item: HTMLElement,
  { turn, missing, sight: seen }: Extract<Entry, { is: "turn" }>,
): void {
  setAttributes(item, {
    "data-turn": turn.turn,
    "data-status": turn.status,
    "aria-busy": turn.status === "running" ? "true" : null,
  });
  drawByline(item, turn.by, clock(turn.at));
  setText(item.querySelector(".question")!, turn.question);
  setAttributes(item.querySelector(".reply")!, { hidden: false });
  const [, sight, state] = item.querySelector(".reply > .byline")!.children;
  setText(sight!, seen);
  setText(state!, stateText(turn));
  renderParts(item.querySelector(".answer")!, parts(turn.text, turn.spans, turn.links));
  const remarks = [
    missing === "" ? "" : `Not read in time, so not part of the answer: ${missing}.`,
    turn.status === "failed" ? failureText(turn) : "",
    turn.finish === "length" ? "The answer reached its length limit." : "",
  ];
  setText(item.querySelector(".remark")!, remarks.filter(Boolean).join(" "));
  setText(item.querySelector(".origin")!, originText(turn));
}

/** Stays under each answer: fluent words are easily taken for checked ones. */
function originText(turn: Turn): string {
  if (turn.text === "") return "";
  const writer = turn.model === "" ? "the model" : `the model ${turn.model}`;
  const check = turn.sight === "none" ? "check it before you use it" : "check it against the sheet";
  return `Written by ${writer}; ${check}.`;
}

function failureText({ message, code }: Turn): string {
  return [sentence(message), code === null ? "" : adviceFor(code)].filter(Boolean).join(" ");
}

function drawByline(item: HTMLElement, by: Actor, when: string): void {
  const [name, department, time] = item.querySelector(".byline")!.children;
  setText(name!, by.name);
  setText(department!, by.department ?? "");
  setText(time!, when);
}

function sightText(turn: Turn, room: RoomState): string {
  if (turn.sight === "pixels") return "saw the pictures";
  if (turn.sight !== "text") return "";
  const given = [...room.assets.values()].filter(
    ({ asset }) => turn.assets.length === 0 || turn.assets.includes(asset),
  );
  if (given.some(({ rows }) => rows.length > 0)) return "knows the pictures' text only";
  return given.length > 1 ? "cannot see these pictures" : "cannot see this picture";
}

function stateText(turn: Turn): string {
  switch (turn.status) {
    case "running":
      return turn.text === "" ? "reading…" : "answering…";
    case "cancelled":
      return "interrupted";
    case "failed":
      return "failed";
    case "done":
      return "";
  }
}

function clock(at: number): string {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}
