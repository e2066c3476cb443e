/** What this participant said and the log has not confirmed yet; it survives reload and reconnect. */

import type { Ask, Op } from "./types.gen";

export type Act = Op | Ask;

/** An act under way. `ackedAt` is its number once the log has it, `null` while nobody knows. */
export interface Pending {
  readonly act: Act;
  readonly ackedAt: number | null;
  readonly refusals: number;
}

export const actId = (act: Act): string => (act.type === "op" ? act.op_id : act.turn);

/** At most `limit` acts; a full outbox refuses instead of forgetting. */
export class Outbox {
  private pending = new Map<string, Pending>();

  constructor(
    acts: readonly Act[] = [],
    private readonly limit = 1_000,
  ) {
    for (const act of acts.slice(0, limit)) this.add(act);
  }

  /** Keep an act until it is settled; false when there is no place for it. */
  add(act: Act): boolean {
    if (this.pending.size >= this.limit) return false;
    this.pending.set(actId(act), { act, ackedAt: null, refusals: 0 });
    return true;
  }

  get(id: string): Pending | undefined {
    return this.pending.get(id);
  }

  /** Everything that is not yet part of the room's state, oldest first. */
  entries(): Pending[] {
    return [...this.pending.values()];
  }

  /** What has to be sent again on a new connection, oldest first. */
  unacked(): Act[] {
    return this.entries()
      .filter((entry) => entry.ackedAt === null)
      .map((entry) => entry.act);
  }

  /** The log has it under `seq`; it stays shown until the room's state reaches that number. */
  ack(id: string, seq: number): void {
    const entry = this.pending.get(id);
    if (entry) this.pending.set(id, { ...entry, ackedAt: seq });
  }

  /** Count a refusal that may pass; returns how many there were. */
  refuse(id: string): number {
    const entry = this.pending.get(id);
    if (!entry) return 0;
    const refusals = entry.refusals + 1;
    this.pending.set(id, { ...entry, refusals });
    return refusals;
  }

  /** Take an act out; true when it was here. */
  drop(id: string): boolean {
    return this.pending.delete(id);
  }

  /** Take out what the state up to `seq` includes; true when anything was. */
  settle(seq: number): boolean {
    let changed = false;
    for (const [id, entry] of this.pending) {
      if (entry.ackedAt !== null && entry.ackedAt <= seq) changed = this.pending.delete(id);
    }
    return changed;
  }
}
