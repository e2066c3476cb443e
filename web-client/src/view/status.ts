/** Whether the page is connected, and how much of one's own work is not saved yet. */

import type { Phase, PhaseDetail } from "../connection";
import { byId, setAttributes, setText } from "./dom";

/** An answer of the server usually comes sooner; only what waits longer is worth a word. */
const UNREMARKABLE_MS = 400;

export class StatusLine {
  private words = "Connecting…";
  private waiting = 0;
  private timer: number | null = null;
  private readonly line = byId("status", HTMLElement);
  private readonly text = byId("status-text", HTMLElement);

  show(phase: Phase, detail: PhaseDetail, pending: number): void {
    const isOffline = phase === "ended" || !navigator.onLine;
    const state = phase === "live" ? "connected" : isOffline ? "offline" : "reconnecting";
    setAttributes(this.line, { "data-state": state });
    this.words = wordsFor(state, detail);
    this.pending(pending);
    this.write();
  }

  /** Acts that the log has not confirmed are never called saved. */
  pending(count: number): void {
    if (count === this.waiting) return;
    this.waiting = count;
    setAttributes(this.line, { "data-pending": count });
    if (count === 0) this.write();
    else {
      this.timer ??= window.setTimeout(() => {
        this.timer = null;
        this.write();
      }, UNREMARKABLE_MS);
    }
  }

  private write(): void {
    const suffix = this.waiting === 0 ? "" : ` · ${this.waiting} not saved yet`;
    setText(this.text, this.words + suffix);
    setAttributes(this.line, { title: this.words + suffix });
  }
}

function wordsFor(state: string, { retryS }: PhaseDetail): string {
  if (state === "connected") return "Connected";
  if (state === "offline") return "Offline";
  return retryS !== undefined && retryS >= 2
    ? `Reconnecting in ${Math.round(retryS)} s`
    : "Reconnecting…";
}
