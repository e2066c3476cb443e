/**
 * The reducer that folds events into a room's state: pure, the same rules as `protocol/room.py`.
 *
 * The last writer of a property wins in server order, a delete wins over later edits, and an
 * event whose `seq` was folded already changes nothing. A state is never changed in place: what
 * an event does not touch stays the same object, so a view can tell by identity what to redraw.
 */

import type {
  AnnotationState,
  AnyEvent,
  AssetState,
  CommentState,
  Keyframe,
  Level,
  ObservedRow,
  Snapshot,
  TurnState,
} from "./types.gen";

export type Asset = Required<AssetState>;
export type Mark = Required<AnnotationState>;
export type Comment = Required<CommentState>;
export type Turn = Required<TurnState>;

/** Of a video there are never more; of a camera the newest are kept. */
export const MAX_KEYFRAMES = 600;

/** Everything lasting in a room after event `seq` of `epoch`. */
export interface RoomState {
  readonly epoch: string;
  readonly seq: number;
  readonly assets: ReadonlyMap<string, Asset>;
  readonly annotations: ReadonlyMap<string, Mark>;
  readonly comments: ReadonlyMap<string, Comment>;
  readonly turns: ReadonlyMap<string, Turn>;
}

/** An event does not follow the state: events are missing, or the epoch is another. */
export class EventGap extends Error {}

export function emptyRoom(epoch = "", seq = 0): RoomState {
  return {
    epoch,
    seq,
    assets: new Map(),
    annotations: new Map(),
    comments: new Map(),
    turns: new Map(),
  };
}

/** Build the state that a snapshot describes. */
export function fromSnapshot(snapshot: Snapshot): RoomState {
  return {
    epoch: snapshot.epoch,
    seq: snapshot.seq,
    assets: keyed(snapshot.assets, wholeAsset, (asset) => asset.asset),
    annotations: keyed(snapshot.annotations, wholeMark, (mark) => mark.annotation.id),
    comments: keyed(snapshot.comments, wholeComment, (comment) => comment.id),
    turns: keyed(snapshot.turns, wholeTurn, (turn) => turn.turn),
  };
}

/**
 * Fold a numbered event into the state; the same state when it was folded before.
 *
 * Throws `EventGap` when the event is not the next one.
 */
export function apply(state: RoomState, event: AnyEvent): RoomState {
  const seq = event.seq ?? 0;
  const epoch = event.epoch ?? "";
  if (state.epoch !== "" && epoch !== state.epoch) {
    throw new EventGap(`epoch ${epoch} is not ${state.epoch}`);
  }
  if (seq <= state.seq) return state;
  if (seq !== state.seq + 1) throw new EventGap(`event ${seq} does not follow ${state.seq}`);
  return { ...fold(state, event), epoch, seq };
}

function fold(state: RoomState, event: AnyEvent): RoomState {
  switch (event.type) {
    case "asset.opened":
    case "asset.committed":
    case "asset.detected":
    case "asset.level":
    case "asset.keyframe":
    case "asset.observed":
    case "asset.read":
    case "asset.failed":
      return foldAsset(state, event);
    case "annotation.put":
    case "annotation.patch":
    case "annotation.delete":
    case "annotation.restore":
      return foldAnnotation(state, event);
    case "comment.add": {
      const comment = wholeComment({
        id: event.id,
        text: event.text,
        by: event.actor,
        at: event.at,
        seq: event.seq ?? 0,
        target: event.target ?? null,
      });
      return { ...state, comments: put(state.comments, comment.id, comment) };
    }
    case "turn.started":
    case "turn.prompted":
    case "turn.delta":
    case "turn.annotation":
    case "turn.done":
    case "turn.cancelled":
    case "turn.failed":
      return foldTurn(state, event);
    default:
      // An event of a newer server keeps its number and changes nothing that this page knows.
      return (event satisfies never, state);
  }
}

type AssetEvent = Extract<AnyEvent, { type: `asset.${string}` }>;
type AnnotationEvent = Extract<AnyEvent, { type: `annotation.${string}` }>;
type TurnEvent = Extract<AnyEvent, { type: `turn.${string}` }>;

function foldAsset(state: RoomState, event: AssetEvent): RoomState {
  if (event.type === "asset.opened") {
    const opened = wholeAsset({
      asset: event.asset,
      name: event.name,
      by: event.actor,
      kind: event.kind ?? "file",
      size: event.size ?? null,
      media_type: event.media_type ?? "",
    });
    return { ...state, assets: put(state.assets, event.asset, opened) };
  }
  const asset = state.assets.get(event.asset);
  if (asset === undefined || asset.status === "failed") return state;
  if (event.type === "asset.keyframe") return withKeyframe(state, asset, event.keyframe);
  const assets = put(state.assets, event.asset, assetAfter(asset, event));
  if (event.type !== "asset.failed") return { ...state, assets };
  return { ...state, assets, annotations: withdrawn(state, event.asset, event.seq ?? 0) };
}

/** Add a keyframe; what was read on those that leave goes with them. */
function withKeyframe(state: RoomState, asset: Asset, keyframe: Keyframe): RoomState {
  const known = asset.keyframes.filter((each) => each.frame !== keyframe.frame);
  if (known.length < MAX_KEYFRAMES) {
    const grown = { ...asset, keyframes: [...known, keyframe] };
    return { ...state, assets: put(state.assets, asset.asset, grown) };
  }
  const keyframes = [...known.slice(1 - MAX_KEYFRAMES), keyframe];
  // A still that is shown unchanged keeps the rows of the one that it is like.
  const needed = new Set(keyframes.map((each) => each.like ?? each.frame));
  const rows = asset.rows.filter((row) => row.type === "speech" || needed.has(row.frame ?? 0));
  const annotations = new Map(state.annotations);
  for (const [id, mark] of annotations) {
    const { target } = mark.annotation;
    const isOld = target.asset === asset.asset && !needed.has(target.frame ?? 0);
    if (isOld && mark.by.kind === "model") annotations.delete(id);
  }
  const assets = put(state.assets, asset.asset, { ...asset, keyframes, rows });
  return { ...state, assets, annotations };
}

function assetAfter(
  asset: Asset,
  event: Exclude<AssetEvent, { type: "asset.opened" | "asset.keyframe" }>,
): Asset {
  switch (event.type) {
    case "asset.committed":
      return { ...asset, status: "committed", size: event.size, sha256: event.sha256 };
    case "asset.detected":
      return {
        ...asset,
        media_type: event.media_type,
        width: event.width,
        height: event.height,
        frames: event.frames ?? 1,
        imaging: event.imaging ?? null,
        duration_s: event.duration_s ?? 0,
      };
    case "asset.level":
      return { ...asset, levels: withLevel(asset.levels, event.level) };
    case "asset.observed":
      return { ...asset, rows: withRows(asset.rows, event.rows) };
    case "asset.read":
      return { ...asset, status: "read" };
    case "asset.failed":
      return {
        ...asset,
        status: "failed",
        code: event.code,
        message: event.message,
        rows: [],
        levels: [],
        keyframes: [],
      };
  }
}

function withLevel(levels: readonly Level[], level: Level): Level[] {
  return [...levels.filter((known) => known.level !== level.level), level];
}

function withRows(rows: readonly ObservedRow[], more: readonly ObservedRow[]): ObservedRow[] {
  // A look that was repeated after a crash names its rows as the first one did.
  const known = new Map(rows.map((row) => [row.id, row]));
  for (const row of more) known.set(row.id, row);
  return [...known.values()];
}

function withdrawn(state: RoomState, asset: string, seq: number): ReadonlyMap<string, Mark> {
  const marks = new Map(state.annotations);
  for (const [id, mark] of marks) {
    if (mark.annotation.target.asset === asset && mark.by.kind === "model") {
      marks.set(id, { ...mark, deleted: true, changed_seq: seq });
    }
  }
  return marks;
}

function foldAnnotation(state: RoomState, event: AnnotationEvent): RoomState {
  const seq = event.seq ?? 0;
  if (event.type === "annotation.put") {
    const mark = wholeMark({
      annotation: event.annotation,
      by: event.actor,
      seq,
      changed_seq: seq,
    });
    return { ...state, annotations: put(state.annotations, event.annotation.id, mark) };
  }
  const known = state.annotations.get(event.id);
  if (known === undefined) return state;
  if (event.type === "annotation.patch" && known.deleted) return state;
  return {
    ...state,
    annotations: put(state.annotations, event.id, { ...markAfter(known, event), changed_seq: seq }),
  };
}

/** What an edit makes of a mark, for events that have a number and for ops that wait for theirs. */
export function markAfter(
  mark: Mark,
  edit:
    | Pick<
        Extract<AnnotationEvent, { type: "annotation.patch" }>,
        "type" | "shape" | "label" | "severity"
      >
    | { type: "annotation.delete" | "annotation.restore" },
): Mark {
  switch (edit.type) {
    case "annotation.patch": {
      const annotation = { ...mark.annotation };
      if (edit.shape !== undefined) annotation.shape = edit.shape;
      if (edit.label !== undefined) annotation.label = edit.label;
      if (edit.severity !== undefined) annotation.severity = edit.severity;
      return { ...mark, annotation };
    }
    case "annotation.delete":
      return { ...mark, deleted: true };
    case "annotation.restore":
      return { ...mark, deleted: false };
  }
}

function foldTurn(state: RoomState, event: TurnEvent): RoomState {
  if (event.type === "turn.started") {
    const started = wholeTurn({
      turn: event.turn,
      question: event.question,
      by: event.actor,
      at: event.at,
      seq: event.seq ?? 0,
      assets: event.assets ?? [],
    });
    return { ...state, turns: put(state.turns, event.turn, started) };
  }
  const turn = state.turns.get(event.turn);
  if (turn === undefined || turn.status !== "running") return state;
  return { ...state, turns: put(state.turns, event.turn, turnAfter(turn, event)) };
}

function turnAfter(turn: Turn, event: Exclude<TurnEvent, { type: "turn.started" }>): Turn {
  switch (event.type) {
    case "turn.prompted":
      return { ...turn, model: event.model, sight: event.sight, missing: event.missing ?? [] };
    case "turn.delta":
      return {
        ...turn,
        text: turn.text + event.text,
        spans: event.spans?.length ? [...turn.spans, ...event.spans] : turn.spans,
      };
    case "turn.annotation":
      return { ...turn, links: [...turn.links, event.link] };
    case "turn.done":
      return { ...turn, status: "done", finish: event.finish, timings: event.timings ?? {} };
    case "turn.cancelled":
      return { ...turn, status: "cancelled", finish: event.reason ?? "person" };
    case "turn.failed":
      return { ...turn, status: "failed", code: event.code, message: event.message };
  }
}

function put<T>(map: ReadonlyMap<string, T>, key: string, value: T): ReadonlyMap<string, T> {
  return new Map(map).set(key, value);
}

function keyed<T, W>(
  items: readonly T[] | undefined,
  whole: (item: T) => W,
  key: (item: T) => string,
): ReadonlyMap<string, W> {
  return new Map((items ?? []).map((item) => [key(item), whole(item)]));
}

// The wire leaves defaults out; the state always has every field.

const wholeAsset = (asset: AssetState): Asset => ({
  kind: "file",
  status: "open",
  size: null,
  sha256: null,
  media_type: "",
  width: 0,
  duration_s: 0,
  height: 0,
  levels: [],
  rows: [],
  code: null,
  message: "",
  frames: 1,
  imaging: null,
  keyframes: [],
  ...asset,
});

export const wholeMark = (mark: AnnotationState): Mark => ({ deleted: false, ...mark });

const wholeComment = (comment: CommentState): Comment => ({ target: null, ...comment });

const wholeTurn = (turn: TurnState): Turn => ({
  assets: [],
  status: "running",
  text: "",
  spans: [],
  links: [],
  model: "",
  sight: null,
  missing: [],
  finish: "",
  code: null,
  message: "",
  timings: {},
  ...turn,
});
