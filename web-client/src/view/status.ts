/** Whether the page is connected, and how much of one's own work is not saved yet. */

import type { Phase, PhaseDetail } from "../connection";
import { byId, setAttributes, setText } from "./dom";

export class StatusLine {
  private words = "Connecting…";
  private waiting = 0;
  private readonly line = byId("status", HTMLElement);
  private readonly text = byId("status-text", HTMLElement);

  show(phase: Phase, detail: PhaseDetail, pending: number): void {
    const isOffline = phase === "ended" || !navigator.onLine;
    const state = phase === "live" ? "connected" : isOffline ? "offline" : "reconnecting";
    setAttributes(this.line, { "data-state": state });
    this.words = this.wordsFor(state, detail);
    this.pending(pending);
  }

  /** Acts that the log has not confirmed are never called saved. */
  pending(count: number): void {
    this.waiting = count;
    const suffix = this.waiting === 0 ? "" : ` · ${this.waiting} not saved yet`;
    setText(this.text, this.words + suffix);
    setAttributes(this.line, { "data-pending": this.waiting });
  }

  private wordsFor(state: string, { retryS }: PhaseDetail): string {
    if (state === "connected") return "Connected";
    if (state === "offline") return "Offline";
    return retryS !== undefined && retryS >= 2
      ? `Reconnecting in ${Math.round(retryS)} s`
      : "Reconnecting…";
  }
}
