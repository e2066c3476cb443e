/** A room on the screen: what is received becomes visible, what a person does is sent. */

import { adviceFor, endWords, isTurnedAway, sentence } from "./advice";
import { Connection, type Phase, type PhaseDetail, type Surroundings } from "./connection";
import { newId, type Memory } from "./identity";
import type { Act } from "./protocol/outbox";
import type { Output, Session } from "./protocol/session";
import type { AnyOp, AssetProgress, CameraState, ErrorCode, Presence } from "./protocol/types.gen";
import { Uploads } from "./upload";
import { Camera } from "./camera";
import { Composer } from "./view/composer";
import { Microphone } from "./microphone";
import { DeletedMarks, isUndo } from "./view/deleted";
import { LabTable } from "./view/labtable";
import { Pictures, type Spot } from "./view/pictures";
import { PeopleList } from "./view/presence";
import { showRole } from "./view/role";
import { SpeechList } from "./view/speech";
import { StatusLine } from "./view/status";
import { Toasts } from "./view/toasts";
import { Transcript } from "./view/transcript";
import { byId } from "./view/dom";
import type { Place } from "./view/viewport";

/** At most one position every so many milliseconds: 20 a second. */
const PRESENCE_MS = 50;
const CLOSE_NORMAL = 1000;
const CLOSE_REPLACED = 4409;
const MAX_PROGRESS = 1_000;

/** What stands between the page and the room. */
export interface Door {
  cameIn(): void;
  /** For good, as one comes now; with the server's last word. */
  turnedAway(error: ErrorCode | null): void;
}

export class RoomPage {
  private readonly connection: Connection;
  private readonly uploads: Uploads;
  private readonly pictures: Pictures;
  private readonly transcript: Transcript;
  private readonly lab: LabTable;
  private readonly speech = new SpeechList(byId("speech", HTMLElement));
  private readonly microphone: Microphone;
  private readonly camera: Camera;
  private readonly people: PeopleList;
  private readonly composer: Composer;
  private readonly status = new StatusLine();
  private readonly progress = new Map<string, AssetProgress>();
  private readonly cameras = new Map<string, CameraState>();
  private presence: Presence = { type: "presence" };
  private presenceTimer: number | null = null;
  private readonly failuresTold = new Set<string>();
  private readonly deleted = new DeletedMarks();
  private isDrawing = false;
  private keepsActs = true;
  private lastFatal: ErrorCode | null = null;

  constructor(
    private readonly session: Session,
    private readonly room: string,
    url: string,
    private readonly memory: Memory,
    around: Surroundings,
    private readonly toasts: Toasts,
    private readonly door: Door,
  ) {
    this.connection = new Connection(url, session, around, {
      phaseChanged: (phase, detail) => this.phaseChanged(phase, detail),
      received: (output) => this.received(output),
    });
    const digest = globalThis.crypto.subtle
      ? (bytes: ArrayBuffer) => crypto.subtle.digest("SHA-256", bytes)
      : null;
    const news = {
      uploadsChanged: () => this.draw(),
      uploadNamed: (asset: string) => this.pictures.choose(asset),
      uploadFailed: (name: string, asset: string | null, code: ErrorCode, message: string) =>
        this.tellFailure(asset, name, code, message),
    };
    this.uploads = new Uploads(this.connection, news, digest);
    this.microphone = new Microphone(this.connection, {
      microphoneChanged: () => this.draw(),
      microphoneFailed: (message, code) => this.deviceFailed(message, code),
    });
    const cameraNews = {
      cameraName: () => `${this.session.me().name}'s camera`,
      cameraFailed: (message: string, code: ErrorCode | null) => this.deviceFailed(message, code),
      cameraNamed: (asset: string) => this.pictures.choose(asset),
    };
    this.camera = new Camera(this.connection, cameraNews);
    this.pictures = new Pictures(
      session,
      {
        act: (op) => this.submitOp(op),
        filesChosen: (files) => files.forEach((file) => this.uploads.add(file)),
        pointed: (asset, place) => this.pointed(asset, place),
        pictureChosen: (asset) => memory.keepPicture(room, asset),
        markDeleted: (id) => this.offerUndo(id),
      },
      newId,
      memory.picture(room),
    );
    const show = (place: Spot | null): void => this.pictures.light(place);
    const reveal = (place: Spot): void => this.pictures.reveal(place);
    this.transcript = new Transcript(
      byId("transcript-scroll", HTMLElement),
      byId("transcript", HTMLElement),
      byId("transcript-empty", HTMLElement),
      { linkHovered: show, linkChosen: reveal },
    );
    this.lab = new LabTable(
      byId("lab-rows", HTMLElement),
      byId("lab-count", HTMLElement),
      byId("lab-empty", HTMLElement),
      { rowHovered: show, rowChosen: reveal },
    );
    this.people = new PeopleList(byId("people", HTMLElement), byId("people-count", HTMLElement));
    this.composer = new Composer({
      asked: (text, interrupts) => this.ask(text, interrupts),
      said: (text) => this.submitOp({ type: "comment.add", id: newId(), text }),
      interrupted: (turn) => this.connection.send({ type: "cancel", turn }),
      typing: (typing) => this.showPresence({ ...this.presence, typing }),
      microphonePressed: (asks) => this.useMicrophone(asks),
    });
    window.addEventListener("beforeunload", (event) => {
      // The browser forgets the files of a page that goes, so their uploads could not go on.
      const isSending = this.uploads.list().length > 0 || this.microphone.isUnderWay;
      if (isSending) event.preventDefault();
    });
    document.addEventListener("keydown", (event) => this.undo(event));
    window.addEventListener("online", () => this.connection.connect());
    window.addEventListener("offline", () => this.status.show(this.connection.phase, {}, 0));
  }

  start(): void {
    this.draw();
    this.connection.connect();
  }

  leave(): void {
    this.connection.leave();
    this.memory.leave(this.room);
  }

  /** A new token for the same seat: told at once, and used for each later connection. */
  refresh(token: string): void {
    this.session.identity.token = token;
    if (!this.connection.send({ type: "refresh", token })) this.connection.connect();
  }

  private received(output: Output): void {
    switch (output.do) {
      case "room":
        this.uploads.committed((asset) => this.isStored(asset));
        this.keepActs();
        this.draw();
        return;
      case "people":
        this.draw();
        return;
      case "access":
        this.pictures.renewAccess();
        this.draw();
        return;
      case "progress":
        if (this.progress.size >= MAX_PROGRESS) this.progress.clear();
        this.progress.set(output.progress.asset, output.progress);
        this.draw();
        return;
      case "stream":
        if (this.microphone.receive(output.message) || this.camera.receive(output.message)) return;
        this.uploads.receive(output.message);
        return;
      case "camera":
        if (this.cameras.size >= MAX_PROGRESS) this.cameras.clear();
        this.cameras.set(output.camera.asset, output.camera);
        this.draw();
        return;
      case "failed":
        this.assetFailed(output);
        return;
      case "refused":
        this.keepActs();
        this.refused(output);
        return;
      case "error":
        // What ends the connection is told by the status line and, when for good, by its close code.
        if (output.error.fatal) this.lastFatal = output.error.code;
        if (output.error.fatal || this.uploads.receiveError(output.error)) return;
        // A turn that ended by itself before the interrupt came is what was wanted.
        if (output.error.code !== "turn_unknown")
          this.tell(sentence(output.error.message), output.error.code);
        return;
      case "send":
      case "restart":
      case "live":
      case "wait":
      case "later":
        return; // The connection has carried these out.
      default:
        output satisfies never;
    }
  }

  private phaseChanged(phase: Phase, detail: PhaseDetail): void {
    this.status.show(phase, detail, this.session.outbox.unacked().length);
    if (phase === "live") {
      const { limits, welcome } = this.session;
      this.lastFatal = null;
      this.door.cameIn();
      if (welcome !== null) showRole(welcome.role);
      this.uploads.connected(limits?.max_streams ?? 1, limits?.max_asset_bytes ?? Infinity);
      this.microphone.connected();
      this.camera.connected();
      for (const text of welcome?.notices ?? []) this.notice(text);
      if (welcome?.durable === false) {
        this.notice("This server does not store durably what is said here.");
      }
      this.presence = { ...this.presence, asset: this.pictures.asset };
      this.connection.send(this.presence);
    } else {
      this.uploads.disconnected();
      this.microphone.disconnected();
      this.camera.disconnected();
    }
    if (phase === "ended") this.ended(detail.code ?? 0);
  }

  private ended(code: number): void {
    if (code === CLOSE_NORMAL) return;
    if (isTurnedAway(code)) {
      this.door.turnedAway(this.lastFatal);
      return;
    }
    const text = endWords(code);
    const here = { name: "Connect here", act: () => this.connection.connect() };
    this.toasts.show({ text, isError: true, ...(code === CLOSE_REPLACED && { action: here }) });
  }

  /** Once is enough, however often the connection or the page comes back. */
  private notice(text: string): void {
    if (this.memory.isNews(text)) this.toasts.show({ text });
  }

  private assetFailed({ asset, code, message }: Extract<Output, { do: "failed" }>): void {
    const known = this.session.room.assets.get(asset);
    // What is still on its way starts over by itself; what others brought is theirs to mend.
    const isUnderWay = this.uploads.list().some((upload) => upload.asset === asset);
    if (known?.by.id !== this.session.me().id || isUnderWay) return;
    this.tellFailure(asset, known.name, code, message);
  }

  private tellFailure(asset: string | null, name: string, code: ErrorCode, message: string): void {
    if (asset !== null && this.failuresTold.has(asset)) return;
    if (asset !== null) this.failuresTold.add(asset);
    this.tell(`${name}: ${sentence(message)}`, code);
  }

  private refused({ act, code, message }: Extract<Output, { do: "refused" }>): void {
    const op = act.type === "op" ? act.op : null;
    const lost = op?.type === "annotation.patch" ? this.session.room.annotations.get(op.id) : null;
    if (code === "annotation_deleted" && op?.type === "annotation.patch" && lost) {
      const { type: _, id: __, ...change } = op;
      const annotation = { ...lost.annotation, ...change, id: newId() };
      const again = {
        name: "Draw it again",
        act: () => this.submitOp({ type: "annotation.put", annotation }),
      };
      this.toasts.show({
        text: "Somebody deleted this mark meanwhile.",
        isError: true,
        action: again,
      });
      return;
    }
    if (act.type === "ask") this.composer.giveBack(act.text);
    if (op?.type === "comment.add") this.composer.giveBack(op.text);
    this.tell(sentence(message), code);
  }

  private useMicrophone(asks: boolean): void {
    if (this.microphone.isOn) this.microphone.stop();
    else void this.microphone.start(this.session.me().name, asks);
  }

  private deviceFailed(message: string, code: ErrorCode | null): void {
    if (code === null) this.toasts.show({ text: message, isError: true });
    else this.tell(message, code);
  }

  private ask(text: string, interrupts: string | null): boolean {
    const act: Act = { type: "ask", turn: newId(), text };
    if (interrupts !== null) act.interrupts = interrupts;
    return this.submit(act);
  }

  private submitOp(op: AnyOp): boolean {
    return this.submit({ type: "op", op_id: newId(), op });
  }

  private submit(act: Act): boolean {
    if (!this.connection.submit(act)) {
      const advice = "Wait until the connection is back.";
      this.toasts.show({ text: "Too much waits to be sent.", advice, isError: true });
      return false;
    }
    this.keepActs();
    this.transcript.scrollToEnd();
    this.draw();
    return true;
  }

  private keepActs(): void {
    const kept = this.memory.keepActs(this.room, this.session.outbox.unacked());
    if (this.keepsActs && !kept) {
      const text = "This browser has no space to keep unsent work.";
      this.toasts.show({ text, advice: "Do not reload while offline.", isError: true });
    }
    this.keepsActs = kept;
  }

  private offerUndo(id: string): void {
    this.deleted.add(id);
    const act = (): void => {
      this.deleted.remove(id);
      this.submitOp({ type: "annotation.restore", id });
    };
    this.toasts.show({ text: "Mark deleted.", action: { name: "Undo", act } });
  }

  private undo(event: KeyboardEvent): void {
    const isWriting = event.target instanceof Element && event.target.matches("input, textarea");
    if (isWriting || !isUndo(event)) return;
    const id = this.deleted.takeLast((known) =>
      this.session.marks().some(({ mark }) => mark.annotation.id === known),
    );
    if (id === null) return;
    event.preventDefault();
    this.submitOp({ type: "annotation.restore", id });
  }

  private tell(text: string, code: ErrorCode): void {
    this.toasts.show({ text, advice: adviceFor(code), isError: true });
  }

  private isStored(asset: string): boolean {
    const status = this.session.room.assets.get(asset)?.status;
    return status === "committed" || status === "read";
  }

  private pointed(asset: string | null, place: Place | null): void {
    const at = place === null ? { x: null, y: null } : place;
    this.showPresence({ ...this.presence, asset, ...at });
  }

  /** Tell the others where one is: the newest position of each interval. */
  private showPresence(presence: Presence): void {
    this.presence = presence;
    this.presenceTimer ??= window.setTimeout(() => {
      this.presenceTimer = null;
      this.connection.send(this.presence);
    }, PRESENCE_MS);
  }

  /** Draw once in the next frame, however much arrives before it. */
  private draw(): void {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.drawNow();
    });
  }

  private drawNow(): void {
    const { session } = this;
    const { room } = session;
    const waiting = session.outbox.entries().map(({ act }) => act);
    this.pictures.render(this.uploads.list(), this.progress, this.cameras);
    this.transcript.render(room, waiting);
    this.speech.render(room);
    this.lab.render(room);
    const me = session.welcome?.participant ?? "";
    this.people.render(session.people, me, (asset) => room.assets.get(asset)?.name ?? null);
    const running = [...room.turns.values()].filter(({ status }) => status === "running");
    this.composer.render(running.at(-1)?.turn ?? null, session.engineReady);
    this.composer.renderMicrophone(this.microphone.isOn);
    this.status.pending(session.outbox.unacked().length);
  }
}
