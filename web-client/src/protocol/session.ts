/**
 * The client's side of a room without any I/O: messages come in, decisions come out.
 *
 *     hello() ─► receive(welcome) ─► receive(…)* ─► closed ─► hello() with `resume` ─► …
 *
 * It keeps what must survive a reconnect: the room's state with its position, and every act that
 * was not acknowledged. Acts are sent again after each welcome; the server drops repetitions.
 */

import { Outbox, actId, type Act, type Pending } from "./outbox";
import { EventGap, apply, emptyRoom, fromSnapshot, markAfter, wholeMark } from "./room";
import type { Mark, RoomState } from "./room";
import {
  ERROR_MEANINGS,
  type Actor,
  type AnyClientMessage,
  type AnyEvent,
  type AnyServerMessage,
  type AssetProgress,
  type CameraState,
  type Error as ErrorMessage,
  type ErrorCode,
  type Heartbeat,
  type Hello,
  type Limits,
  type MediaAccess,
  type Nack,
  type Person,
  type StreamClosed,
  type StreamCredit,
  type StreamOpened,
  type Welcome,
} from "./types.gen";

export interface Identity {
  session: string;
  client: string;
  name: string;
  department: string;
  token: string | null;
}

/** What a received message asks of the connection or of the page. */
export type Output =
  | { do: "send"; messages: AnyClientMessage[] }
  | { do: "restart"; reason: string }
  | { do: "live"; heartbeatS: number }
  | { do: "wait"; seconds: number }
  | { do: "later"; act: string; seconds: number }
  | { do: "room" }
  | { do: "people" }
  | { do: "access" }
  | { do: "progress"; progress: AssetProgress }
  | { do: "camera"; camera: CameraState }
  | { do: "stream"; message: StreamOpened | StreamCredit | StreamClosed }
  | { do: "failed"; asset: string; code: ErrorCode; message: string }
  | { do: "refused"; act: Act; code: ErrorCode; message: string }
  | { do: "error"; error: ErrorMessage };

/** A refusal that may pass is tried again this often before the person is told. */
const MAX_REFUSALS = 6;
/** Restarts in a row that brought nothing new, after which the own copy is given up. */
const MAX_FRUITLESS = 2;

export class Session {
  room: RoomState = emptyRoom();
  welcome: Welcome | null = null;
  people: ReadonlyMap<string, Person> = new Map();
  media: MediaAccess | null = null;
  limits: Limits | null = null;
  engineReady = true;
  readonly outbox: Outbox;

  private announced: { head: number; seq: number } | null = null;
  private fruitless = 0;
  private seqAtHello = -1;

  constructor(
    readonly identity: Identity,
    acts: readonly Act[] = [],
  ) {
    this.outbox = new Outbox(acts);
  }

  /** The first message of the next connection, with the position reached so far. */
  hello(): Hello {
    const { session, client, name, department, token } = this.identity;
    this.fruitless = this.seqAtHello === this.room.seq ? this.fruitless + 1 : 0;
    this.seqAtHello = this.room.seq;
    const hello: Hello = { type: "hello", session, client, name, department };
    if (token !== null) hello.token = token;
    if (this.room.epoch !== "") hello.resume = { epoch: this.room.epoch, seq: this.room.seq };
    return hello;
  }

  /** Keep an act until the log has it; false when too many wait already. */
  submit(act: Act): boolean {
    return this.outbox.add(act);
  }

  /** An act to send again after a refusal that may pass; null when it was settled meanwhile. */
  again(id: string): Act | null {
    const entry = this.outbox.get(id);
    return entry && entry.ackedAt === null ? entry.act : null;
  }

  /**
   * Say what a message asks for.
   *
   * One that cannot be taken in gives the own copy up, instead of leaving the page between two
   * states for ever; the acts stay.
   */
  receive(message: AnyServerMessage): Output[] {
    try {
      return this.take(message);
    } catch (error) {
      return this.giveUpCopy(String(error));
    }
  }

  private take(message: AnyServerMessage): Output[] {
    switch (message.type) {
      case "welcome":
        return this.welcomed(message);
      case "heartbeat":
        return this.beat(message);
      case "access":
        this.media = message.media;
        return [{ do: "access" }];
      case "goaway":
        return [{ do: "wait", seconds: message.retry_after }];
      case "error":
        return this.failed(message);
      case "ack":
        this.outbox.ack(message.op_id, message.seq);
        this.outbox.settle(this.room.seq);
        return [{ do: "room" }];
      case "nack":
        return this.refused(message);
      case "stream.opened":
      case "stream.credit":
      case "stream.closed":
        return [{ do: "stream", message }];
      case "presence":
        this.people = new Map(this.people).set(message.person.participant, message.person);
        return [{ do: "people" }];
      case "presence.gone": {
        const people = new Map(this.people);
        people.delete(message.participant);
        this.people = people;
        return [{ do: "people" }];
      }
      case "asset.progress":
        return [{ do: "progress", progress: message }];
      case "asset.camera":
        return [{ do: "camera", camera: message }];
      default:
        return this.happened(message);
    }
  }

  /** The marks to draw: the room's, with the own acts that wait for their number on top. */
  marks(): { mark: Mark; pending: boolean }[] {
    const marks = new Map<string, { mark: Mark; pending: boolean }>();
    for (const [id, mark] of this.room.annotations) marks.set(id, { mark, pending: false });
    for (const { act } of this.outbox.entries()) {
      if (act.type !== "op" || act.op.type === "comment.add") continue;
      if (act.op.type === "annotation.put") {
        const { annotation } = act.op;
        const mark = wholeMark({ annotation, by: this.me(), seq: 0, changed_seq: 0 });
        if (!marks.has(annotation.id)) marks.set(annotation.id, { mark, pending: true });
        continue;
      }
      const known = marks.get(act.op.id);
      if (known === undefined) continue;
      if (act.op.type === "annotation.patch" && known.mark.deleted) continue;
      marks.set(act.op.id, { mark: markAfter(known.mark, act.op), pending: true });
    }
    return [...marks.values()].filter(({ mark }) => !mark.deleted);
  }

  /** The person at this page, as the room's events name them. */
  me(): Actor {
    return {
      id: this.welcome?.participant ?? "",
      name: this.welcome?.name ?? this.identity.name,
      department: this.welcome?.department ?? this.identity.department,
      kind: "person",
    };
  }

  private welcomed(welcome: Welcome): Output[] {
    this.welcome = welcome;
    this.media = welcome.media;
    this.limits = welcome.limits;
    this.announced = null;
    this.people = new Map((welcome.people ?? []).map((person) => [person.participant, person]));
    if (welcome.snapshot) {
      this.room = fromSnapshot(welcome.snapshot);
    } else if (this.room.epoch === "") {
      this.room = emptyRoom(welcome.epoch);
    } else if (this.room.epoch !== welcome.epoch) {
      return this.giveUpCopy("the room began a new epoch");
    }
    this.outbox.settle(this.room.seq);
    const unacked = this.outbox.unacked();
    const outputs: Output[] = [{ do: "live", heartbeatS: welcome.heartbeat_s }];
    if (unacked.length > 0) outputs.push({ do: "send", messages: unacked });
    outputs.push({ do: "room" }, { do: "people" }, { do: "access" });
    return outputs;
  }

  private happened(event: AnyEvent): Output[] {
    // A type that only a newer server knows and that has no number is passed over.
    if (typeof event.seq !== "number") return [];
    let next: RoomState;
    try {
      next = apply(this.room, event);
    } catch (error) {
      if (!(error instanceof EventGap)) throw error;
      if (this.fruitless > MAX_FRUITLESS) return this.giveUpCopy(error.message);
      return [{ do: "restart", reason: error.message }];
    }
    if (next === this.room) return [];
    this.room = next;
    if (event.actor.id === this.welcome?.participant) this.settleOwn(event);
    this.outbox.settle(next.seq);
    if (event.type !== "asset.failed") return [{ do: "room" }];
    const { asset, code, message } = event;
    return [{ do: "failed", asset, code, message }, { do: "room" }];
  }

  /** The own event is as good as its ack: it has a number. */
  private settleOwn(event: AnyEvent): void {
    if (event.op_id) this.outbox.drop(event.op_id);
    if (event.type === "turn.started") this.outbox.drop(event.turn);
  }

  private beat({ head, t, engine_ready = true }: Heartbeat): Output[] {
    // Control messages overtake events, so being behind one heartbeat says nothing; a client that
    // was behind the last one and got nothing at all since then has lost events.
    const { announced } = this;
    const lost =
      announced !== null && this.room.seq < announced.head && this.room.seq === announced.seq;
    this.announced = head > this.room.seq ? { head, seq: this.room.seq } : null;
    if (lost) return [{ do: "restart", reason: `event ${announced.head} did not come` }];
    const outputs: Output[] = [{ do: "send", messages: [{ type: "heartbeat.ack", t }] }];
    if (engine_ready !== this.engineReady) {
      this.engineReady = engine_ready;
      outputs.push({ do: "people" });
    }
    return outputs;
  }

  private refused(nack: Pick<Nack, "op_id" | "code" | "message" | "retry_after">): Output[] {
    const entry: Pending | undefined = this.outbox.get(nack.op_id);
    if (entry === undefined) return [];
    if (ERROR_MEANINGS[nack.code]?.retry) {
      const refusals = this.outbox.refuse(nack.op_id);
      if (refusals < MAX_REFUSALS) {
        const seconds = nack.retry_after ?? Math.min(2 ** refusals / 2, 10);
        return [{ do: "later", act: actId(entry.act), seconds }];
      }
    }
    this.outbox.drop(nack.op_id);
    const { code, message } = nack;
    return [{ do: "refused", act: entry.act, code, message }, { do: "room" }];
  }

  private failed(error: ErrorMessage): Output[] {
    const outputs: Output[] = [];
    if (error.fatal && error.retry_after != null) {
      outputs.push({ do: "wait", seconds: error.retry_after });
    }
    if (error.ref != null && this.outbox.get(error.ref) !== undefined) {
      return [...outputs, ...this.refused({ ...error, op_id: error.ref })];
    }
    return [...outputs, { do: "error", error }];
  }

  private giveUpCopy(reason: string): Output[] {
    // Only acts without an answer are said again; what the own copy held comes from the server.
    this.room = emptyRoom();
    return [{ do: "restart", reason }, { do: "room" }];
  }
}
