import { beforeEach, describe, expect, test } from "vitest";
import {
  BASE_DELAY_S,
  Connection,
  MAX_DELAY_S,
  delayS,
  mayReconnect,
  type Phase,
  type PhaseDetail,
  type Socket,
  type Surroundings,
} from "../src/connection";
import { Session, type Output } from "../src/protocol/session";
import type { Act } from "../src/protocol/outbox";
import type { AnyClientMessage, AnyServerMessage } from "../src/protocol/types.gen";

/** A socket that does what real ones do at bad times: closes late, speaks after its end. */
class StubbornSocket {
  binaryType = "blob";
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  closedWith: number | undefined;
  readonly heard: AnyClientMessage[] = [];
  private kept: Pick<Socket, "onopen" | "onmessage" | "onclose"> | null = null;

  send(frame: unknown): void {
    if (typeof frame === "string") this.heard.push(...[JSON.parse(frame)].flat());
  }
  close(code?: number): void {
    this.closedWith = code;
  }
  opens(): void {
    this.onopen?.call(this as never, {} as Event);
  }
  says(...messages: AnyServerMessage[]): void {
    const data = JSON.stringify(messages);
    this.onmessage?.call(this as never, { data } as MessageEvent);
  }
  saysText(data: string): void {
    this.onmessage?.call(this as never, { data } as MessageEvent);
  }
  /** Remember the callbacks as they are now, to call them when they are long out of date. */
  keepCallbacks(): void {
    this.kept = { onopen: this.onopen, onmessage: this.onmessage, onclose: this.onclose };
  }
  closesLate(code: number): void {
    this.kept?.onclose?.call(this as never, { code } as CloseEvent);
  }
  closes(code: number): void {
    this.onclose?.call(this as never, { code } as CloseEvent);
  }
}

class Bench implements Surroundings {
  sockets: StubbornSocket[] = [];
  timers = new Map<number, { act: () => void; seconds: number }>();
  chance = 0.5;
  phases: [Phase, PhaseDetail][] = [];
  outputs: Output[] = [];
  private next = 1;

  openSocket(): Socket {
    const socket = new StubbornSocket();
    this.sockets.push(socket);
    return socket as unknown as Socket;
  }
  setTimer(act: () => void, seconds: number): number {
    this.timers.set(this.next, { act, seconds });
    return this.next++;
  }
  clearTimer(timer: number): void {
    this.timers.delete(timer);
  }
  random(): number {
    return this.chance;
  }
  get socket(): StubbornSocket {
    return this.sockets.at(-1)!;
  }
  /** Let the one timer that waits so long run out. */
  elapse(): number {
    const [[id, timer]] = [...this.timers] as [[number, { act: () => void; seconds: number }]];
    this.timers.delete(id);
    timer.act();
    return timer.seconds;
  }
}

const identity = {
  session: "0123456789abcdef0123456789abcdef",
  client: "test/1",
  name: "Mei",
  department: "",
  token: null,
};
const welcome: AnyServerMessage = {
  type: "welcome",
  participant: "p",
  name: "Mei",
  role: "member",
  room: "r",
  epoch: "e1",
  head: 0,
  limits: { max_asset_bytes: 1, max_streams: 1, initial_credit_bytes: 1 },
  heartbeat_s: 5,
  media: { base: "", ticket: "", expires_at: 0 },
  snapshot: { seq: 0, epoch: "e1" },
};
const remark = (id: string): Act => ({
  type: "op",
  op_id: id,
  op: { type: "comment.add", id: `c-${id}`, text: "hm" },
});

let bench: Bench;
let session: Session;
let connection: Connection;

beforeEach(() => {
  bench = new Bench();
  session = new Session(identity);
  connection = new Connection("ws://here/v1/rooms/r", session, bench, {
    phaseChanged: (phase, detail) => bench.phases.push([phase, detail]),
    received: (output) => bench.outputs.push(output),
  });
  connection.connect();
});

function goLive(): StubbornSocket {
  const { socket } = bench;
  socket.opens();
  socket.says(welcome);
  return socket;
}

describe("delays", () => {
  test("R53: full jitter: anything from nothing to the cap, which doubles", () => {
    expect(delayS(0, 0)).toBe(0);
    expect(delayS(0, 1)).toBe(BASE_DELAY_S);
    expect(delayS(3, 1)).toBe(BASE_DELAY_S * 8);
    expect(delayS(3, 0.25)).toBe(BASE_DELAY_S * 2);
    expect(delayS(60, 1)).toBe(MAX_DELAY_S);
  });

  test("never earlier than the server asked", () => {
    expect(delayS(0, 0, 12)).toBe(12);
    expect(delayS(4, 0.5, 12)).toBe(16);
  });

  test("each try waits longer, and success starts over (R13)", () => {
    const waits: number[] = [];
    for (let i = 0; i < 4; i++) {
      bench.socket.closes(1006);
      waits.push(bench.elapse());
    }
    expect(waits).toEqual([0.25, 0.5, 1, 2]);
    goLive().closes(1006);
    expect(bench.elapse()).toBe(0.25);
  });

  test("a server that welcomes and then leaves gaps is backed off from, until a heartbeat", () => {
    const gap = { type: "comment.add", epoch: "e1", at: 0, id: "c", text: "t", seq: 9 } as const;
    const waits: number[] = [];
    for (let i = 0; i < 3; i++) {
      goLive().says({ ...gap, actor: { id: "x", name: "X" } });
      waits.push(bench.elapse());
    }
    expect(waits).toEqual([0.25, 0.5, 1]);
    goLive().says({ type: "heartbeat", head: 0, t: 1 });
    bench.socket.says({ ...gap, actor: { id: "x", name: "X" } });
    expect(bench.elapse()).toBe(0.25);
  });

  test("an open socket without a welcome is no success", () => {
    for (let i = 0; i < 3; i++) {
      bench.socket.opens();
      bench.socket.closes(1006);
      bench.elapse();
    }
    bench.socket.closes(1006);
    expect(bench.elapse()).toBe(2);
  });

  test("goaway says how long to stay away, once", () => {
    const socket = goLive();
    socket.says({ type: "goaway", retry_after: 7 });
    socket.closes(4453);
    expect(bench.elapse()).toBe(7.25);
    bench.socket.closes(1006);
    expect(bench.elapse()).toBe(0.5);
  });
});

describe("close codes", () => {
  test.each([4400, 4401, 4403, 4409, 4413, 4449])("%i ends it", (code) => {
    goLive().closes(code);
    expect(connection.phase).toBe("ended");
    expect(bench.timers.size).toBe(0);
    expect(bench.phases.at(-1)).toEqual(["ended", { code }]);
  });

  test.each([1000, 1001, 1006, 1009, 1011, 1012, 4399, 4450, 4453, 4458, 4459, 4999])(
    "%i is come back from",
    (code) => {
      expect(mayReconnect(code)).toBe(true);
      goLive().closes(code);
      expect(connection.phase).toBe("waiting");
    },
  );

  test("leaving is for good, whatever the socket does after it", () => {
    const socket = goLive();
    socket.keepCallbacks();
    connection.leave();
    expect(socket.closedWith).toBe(1000);
    socket.closesLate(1006);
    expect(connection.phase).toBe("ended");
    expect(bench.timers.size).toBe(0);
  });
});

describe("one socket at a time", () => {
  test("R26, R35: the late close of an older socket does not end the newer one", () => {
    const first = goLive();
    first.keepCallbacks();
    first.saysText("not json");
    bench.elapse();
    const second = goLive();
    first.closesLate(4409);
    expect(connection.phase).toBe("live");
    expect(bench.sockets).toHaveLength(2);
    expect(second.closedWith).toBeUndefined();
  });

  test("connecting again while connected does nothing", () => {
    goLive();
    connection.connect();
    expect(bench.sockets).toHaveLength(1);
  });

  test("connecting at once takes the place of the wait", () => {
    bench.socket.closes(1006);
    connection.connect();
    expect(bench.sockets).toHaveLength(2);
    expect([...bench.timers.values()].map(({ seconds }) => seconds)).toEqual([15]);
  });

  test("a server that never welcomes is given up", () => {
    bench.socket.opens();
    expect(bench.elapse()).toBe(15);
    expect(connection.phase).toBe("waiting");
  });

  test("a socket that went silent is given up after three heartbeats", () => {
    const socket = goLive();
    expect(bench.elapse()).toBe(15);
    expect(socket.closedWith).toBe(1000);
    expect(connection.phase).toBe("waiting");
  });
});

describe("what is said", () => {
  test("hello comes first, with the position reached", () => {
    const socket = goLive();
    socket.says({
      type: "comment.add",
      seq: 1,
      epoch: "e1",
      at: 0,
      actor: { id: "x", name: "X" },
      id: "c",
      text: "t",
    });
    socket.closes(1006);
    bench.elapse();
    bench.socket.opens();
    expect(bench.socket.heard).toEqual([
      expect.objectContaining({ type: "hello", resume: { epoch: "e1", seq: 1 } }),
    ]);
  });

  test("nothing but hello is said before the welcome", () => {
    connection.submit(remark("one"));
    bench.socket.opens();
    connection.submit(remark("two"));
    expect(connection.send({ type: "presence" })).toBe(false);
    expect(bench.socket.heard.map(({ type }) => type)).toEqual(["hello"]);
    bench.socket.says(welcome);
    expect(bench.socket.heard.slice(1)).toEqual([remark("one"), remark("two")]);
  });

  test("what was not acknowledged is said again after a reconnect, once", () => {
    const socket = goLive();
    connection.submit(remark("one"));
    connection.submit(remark("two"));
    socket.says({ type: "ack", op_id: "one", seq: 1 });
    socket.closes(1006);
    bench.elapse();
    const second = goLive();
    expect(second.heard.slice(1)).toEqual([remark("two")]);
  });

  test("after a gap nothing more of the frame is read", () => {
    const event = {
      type: "comment.add",
      epoch: "e1",
      at: 0,
      actor: { id: "x", name: "X" },
      text: "t",
    } as const;
    goLive().says({ ...event, id: "c2", seq: 2 }, { ...event, id: "c1", seq: 1 });
    expect(session.room.seq).toBe(0);
    expect(connection.phase).toBe("waiting");
  });

  test("a refusal that may pass is said again after the time the server gave", () => {
    const socket = goLive();
    connection.submit(remark("one"));
    socket.says({ type: "nack", op_id: "one", code: "rate_limited", message: "", retry_after: 2 });
    const later = [...bench.timers.values()].find(({ seconds }) => seconds === 2);
    later!.act();
    expect(socket.heard.filter(({ type }) => type === "op")).toHaveLength(2);
  });
});
