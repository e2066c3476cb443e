/**
 * One socket to a room, and the next one when it breaks.
 *
 *     waiting ─► connecting ─► greeting ─► live ─┐
 *        ▲            │            │             │
 *        └────────────┴────────────┴─────────────┘      ended: not to come back as we are
 *
 * Decides nothing about the room: `Session` does. Waits with full jitter, so that the clients of a
 * restarted server do not return in the same second.
 */

import { BadFrame, decode, encode } from "./protocol/codec";
import type { Act } from "./protocol/outbox";
import type { Output, Session } from "./protocol/session";
import { SUBPROTOCOL, type AnyClientMessage } from "./protocol/types.gen";

export type Phase = "waiting" | "connecting" | "greeting" | "live" | "ended";

/** The part of a browser's WebSocket that is used here. */
export type Socket = Pick<
  WebSocket,
  "binaryType" | "onopen" | "onmessage" | "onclose" | "send" | "close"
>;

export interface Surroundings {
  openSocket(url: string, protocol: string): Socket;
  setTimer(act: () => void, seconds: number): number;
  clearTimer(timer: number): void;
  /** Uniform in [0, 1). */
  random(): number;
}

/** What the connection tells the page; outputs that concern the socket are not passed on. */
export interface Listener {
  phaseChanged(phase: Phase, detail: PhaseDetail): void;
  received(output: Output): void;
}

export interface PhaseDetail {
  /** Seconds until the next try, while waiting. */
  retryS?: number;
  /** The close code after which no connection is tried, once ended. */
  code?: number;
}

export const BASE_DELAY_S = 0.5;
export const MAX_DELAY_S = 20;
const WELCOME_TIMEOUT_S = 15;
/** Heartbeats that may be missed before the socket counts as dead. */
const MISSED_HEARTBEATS = 3;
const CLOSE_NORMAL = 1000;
const CLOSE_ABNORMAL = 1006;

/** Whether a client whose socket closed with this code should come back. */
export function mayReconnect(code: number): boolean {
  return !(code >= 4400 && code <= 4449);
}

/** How long to wait before try `attempt` (from 0), in seconds; never less than the server asks. */
export function delayS(attempt: number, random: number, floorS = 0): number {
  const cap = Math.min(MAX_DELAY_S, BASE_DELAY_S * 2 ** Math.min(attempt, 16));
  return floorS + random * cap;
}

export class Connection {
  phase: Phase = "waiting";

  private socket: Socket | null = null;
  private attempt = 0;
  /** Restarts since the last heartbeat: a server that welcomes and then fails is backed off from. */
  private restarts = 0;
  private floorS = 0;
  private heartbeatS = 5;
  private waitTimer: number | null = null;
  private watchTimer: number | null = null;
  private readonly laterTimers = new Set<number>();

  constructor(
    private readonly url: string,
    private readonly session: Session,
    private readonly around: Surroundings,
    private readonly listener: Listener,
  ) {}

  /** Connect now, whatever wait was going on. Nothing happens while a socket is in use. */
  connect(): void {
    if (this.socket !== null) return;
    this.stopTimer("waitTimer");
    this.enter("connecting");
    const socket = this.around.openSocket(this.url, SUBPROTOCOL);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    // Each callback belongs to its own socket: a late close of an older one says nothing.
    socket.onopen = () => this.socket === socket && this.greet();
    socket.onmessage = ({ data }) => this.socket === socket && this.read(data);
    socket.onclose = ({ code }) => this.socket === socket && this.closed(code);
    this.watch(WELCOME_TIMEOUT_S);
  }

  /** Leave the room for good. */
  leave(): void {
    this.drop(CLOSE_NORMAL);
    this.stopTimer("waitTimer");
    for (const timer of this.laterTimers) this.around.clearTimer(timer);
    this.laterTimers.clear();
    this.enter("ended", { code: CLOSE_NORMAL });
  }

  /** Say something that need not outlive the connection; false when there is none. */
  send(...messages: AnyClientMessage[]): boolean {
    if (this.phase !== "live" || this.socket === null) return false;
    for (const frame of encode(messages)) this.socket.send(frame);
    return true;
  }

  sendMedia(frame: Uint8Array<ArrayBuffer>): boolean {
    if (this.phase !== "live" || this.socket === null) return false;
    this.socket.send(frame);
    return true;
  }

  /** Say something lasting, now or as soon as there is a connection; false when too much waits. */
  submit(act: Act): boolean {
    if (!this.session.submit(act)) return false;
    this.send(act);
    return true;
  }

  private greet(): void {
    this.enter("greeting");
    for (const frame of encode([this.session.hello()])) this.socket?.send(frame);
  }

  private read(frame: unknown): void {
    if (typeof frame !== "string") return;
    if (this.phase === "live") this.watch(this.heartbeatS * MISSED_HEARTBEATS);
    let messages;
    try {
      messages = decode(frame);
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.restart();
      return;
    }
    const { socket } = this;
    for (const message of messages) {
      for (const output of this.session.receive(message)) this.carryOut(output);
      if (message.type === "heartbeat" && this.socket === socket) this.restarts = 0;
      // What comes after a gap belongs to a position that the state does not have.
      if (this.socket !== socket) return;
    }
  }

  private carryOut(output: Output): void {
    switch (output.do) {
      case "send":
        this.send(...output.messages);
        return;
      case "live":
        this.attempt = 0;
        this.floorS = 0;
        this.heartbeatS = output.heartbeatS;
        this.enter("live");
        this.watch(this.heartbeatS * MISSED_HEARTBEATS);
        return;
      case "wait":
        this.floorS = output.seconds;
        return;
      case "restart":
        this.restart();
        return;
      case "later":
        this.sendLater(output.act, output.seconds);
        return;
      default:
        this.listener.received(output);
    }
  }

  private sendLater(id: string, seconds: number): void {
    const timer = this.around.setTimer(() => {
      this.laterTimers.delete(timer);
      const act = this.session.again(id);
      if (act !== null) this.send(act);
    }, seconds);
    this.laterTimers.add(timer);
  }

  private restart(): void {
    this.attempt = Math.max(this.attempt, this.restarts);
    this.restarts += 1;
    this.drop(CLOSE_NORMAL);
    this.closed(CLOSE_ABNORMAL);
  }

  private closed(code: number): void {
    this.drop();
    if (!mayReconnect(code)) {
      this.enter("ended", { code });
      return;
    }
    const retryS = delayS(this.attempt, this.around.random(), this.floorS);
    this.attempt += 1;
    this.floorS = 0;
    this.waitTimer = this.around.setTimer(() => {
      this.waitTimer = null;
      this.connect();
    }, retryS);
    this.enter("waiting", { retryS });
  }

  /** Let go of the socket; with a code, close it too. */
  private drop(code?: number): void {
    const { socket } = this;
    this.socket = null;
    this.stopTimer("watchTimer");
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    if (code !== undefined) socket.close(code);
  }

  /** Give the socket up when nothing comes for so long. */
  private watch(seconds: number): void {
    this.stopTimer("watchTimer");
    this.watchTimer = this.around.setTimer(() => {
      this.watchTimer = null;
      this.restart();
    }, seconds);
  }

  private stopTimer(name: "waitTimer" | "watchTimer"): void {
    const timer = this[name];
    if (timer !== null) this.around.clearTimer(timer);
    this[name] = null;
  }

  private enter(phase: Phase, detail: PhaseDetail = {}): void {
    this.phase = phase;
    this.listener.phaseChanged(phase, detail);
  }
}
