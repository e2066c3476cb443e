/** The pictures of the room, and files on their way to it. */

import type { Asset, RoomState } from "../protocol/room";
import type { AssetProgress, CameraState } from "../protocol/types.gen";
import type { Upload } from "../upload";
import { isOutOfRange } from "./labtable";
import { duration, isRecording, isVideo, speechOf } from "./speech";
import { KeyedChildren, element, setAttributes, setText } from "./dom";

export interface AssetStripNews {
  assetChosen(asset: string): void;
  /** Where a level of an asset lies; null without permission. */
  levelUrl(asset: string, level: number): string | null;
  /** Where a keyframe of an asset lies. */
  frameUrl(asset: string, frame: number): string | null;
}

interface Card {
  readonly asset: Asset | null;
  readonly name: string;
  readonly status: string;
  readonly words: string;
  readonly progress: number | null;
  readonly isShown: boolean;
}

const THUMBNAIL_LEVELS = [256, 64, 16, 1024];

export class AssetStrip {
  private readonly cards: KeyedChildren<Card, HTMLElement>;

  constructor(
    list: HTMLElement,
    private readonly news: AssetStripNews,
  ) {
    this.cards = new KeyedChildren<Card, HTMLElement>(
      list,
      () => this.newCard(),
      (item, card) => this.drawCard(item, card),
    );
  }

  render(
    room: RoomState,
    uploads: readonly Upload[],
    progress: ReadonlyMap<string, AssetProgress>,
    cameras: ReadonlyMap<string, CameraState>,
    shown: string | null,
  ): void {
    const byAsset = new Map(uploads.map((upload) => [upload.asset, upload]));
    const cards = [...room.assets.values()].map((asset): [string, Card] => {
      const name = asset.asset;
      const card = cardOf(asset, byAsset.get(name), progress.get(name), cameras.get(name));
      const words = [whichOf(asset, room), card.words].filter(Boolean).join(" · ");
      return [asset.asset, { ...card, words, isShown: asset.asset === shown }];
    });
    for (const [index, upload] of uploads.entries()) {
      if (upload.asset !== null && room.assets.has(upload.asset)) continue;
      cards.push([`upload ${index} ${upload.name}`, waitingCard(upload)]);
    }
    this.cards.render(cards);
  }

  private newCard(): HTMLElement {
    const button = element(
      "button",
      { type: "button", class: "card" },
      element("span", { class: "thumb" }),
      element("span", { class: "name" }),
      element("span", { class: "state" }),
      element("progress", { max: 1 }),
    );
    const item = element("li", { "data-testid": "asset" }, button);
    button.addEventListener("click", () => {
      const asset = item.dataset["asset"];
      if (asset) this.news.assetChosen(asset);
    });
    return item;
  }

  private drawCard(item: HTMLElement, card: Card): void {
    setAttributes(item, { "data-asset": card.asset?.asset ?? null, "data-status": card.status });
    const button = item.firstElementChild!;
    if (card.isShown && !button.hasAttribute("aria-current")) {
      // In the next frame the strip has its new width.
      requestAnimationFrame(() => item.scrollIntoView({ block: "nearest", inline: "nearest" }));
    }
    setAttributes(button, {
      "aria-current": card.isShown ? "true" : null,
      title: card.asset?.message ? `${card.name}: ${card.asset.message}` : card.name,
    });
    const [thumb, name, state, bar] = button.children;
    setText(name!, card.name);
    setText(state!, card.words);
    setAttributes(bar!, {
      hidden: card.progress === null || card.progress >= 1,
      value: card.progress !== null && card.progress >= 0 ? card.progress : null,
    });
    if (card.asset !== null) this.drawThumbnail(thumb!, card.asset);
  }

  private drawThumbnail(thumb: Element, asset: Asset): void {
    const has = new Set(asset.levels.map(({ level }) => level));
    const level = THUMBNAIL_LEVELS.find((wanted) => has.has(wanted));
    const url = level === undefined ? null : this.news.levelUrl(asset.asset, level);
    const last = asset.keyframes.at(-1);
    const shown = url ?? (last === undefined ? null : this.news.frameUrl(asset.asset, last.frame));
    if (shown === null) {
      thumb.replaceChildren();
      setAttributes(thumb, { "data-level": null });
      return;
    }
    // The ticket in the URL is renewed now and then; the picture behind it stays the same.
    const key = url === null ? `frame ${last?.frame}` : String(level);
    if (thumb.getAttribute("data-level") === key) return;
    setAttributes(thumb, { "data-level": key });
    const image = element("img", { alt: "", draggable: "false" });
    image.src = shown;
    image.decode().then(
      () => thumb.replaceChildren(image),
      () => setAttributes(thumb, { "data-level": null }),
    );
  }
}

function cardOf(
  asset: Asset,
  upload: Upload | undefined,
  progress: AssetProgress | undefined,
  camera: CameraState | undefined,
): Omit<Card, "isShown"> {
  const card = { asset, name: asset.name || "Unnamed file", status: asset.status };
  switch (asset.status) {
    case "open": {
      const done = upload ? upload.received : progress?.stage === "upload" ? progress.done : null;
      const size = upload?.size ?? asset.size;
      const part = done === null || !size ? -1 : done / size;
      if (asset.kind === "microphone") return { ...card, words: "Recording…", progress: null };
      if (asset.kind === "camera") return { ...card, words: cameraWords(camera), progress: null };
      const words = upload?.stage === "checking" ? "Checking…" : `Uploading${percent(part)}`;
      return { ...card, words, progress: part };
    }
    case "committed": {
      const part = progress && progress.total > 0 ? progress.done / progress.total : -1;
      return { ...card, words: `Reading${percent(part)}`, progress: part };
    }
    case "failed":
      return { ...card, words: "Failed", progress: null };
    case "read":
      return { ...card, words: readWords(asset), progress: null };
  }
}

/** Tells pictures of one name apart: who brought it, and which of theirs it is. */
function whichOf({ asset, name, by }: Asset, room: RoomState): string {
  const same = [...room.assets.values()].filter((other) => other.name === name);
  if (same.length < 2) return "";
  const theirs = same.filter((other) => other.by.id === by.id);
  const number = theirs.findIndex((other) => other.asset === asset) + 1;
  return theirs.length < 2 ? by.name : `${by.name} ${number}/${theirs.length}`;
}

function readWords(asset: Asset): string {
  const lab = asset.rows.filter((row) => row.type === "lab");
  if (lab.length > 0) return `${lab.length} values, ${lab.filter(isOutOfRange).length} flagged`;
  if (isRecording(asset)) {
    const said = speechOf(asset).length;
    return `${duration(asset.duration_s)} · ${said > 0 ? `${said} utterances` : "no speech"}`;
  }
  if (isVideo(asset)) return `${duration(asset.duration_s)} · ${count(asset.rows.length, "line")}`;
  if (asset.kind === "camera") return `${count(asset.keyframes.length, "keyframe")} · off`;
  if (asset.rows.length === 0) return "Ready";
  return asset.rows.length === 1 ? "1 line of text" : `${asset.rows.length} lines of text`;
}

const count = (number: number, what: string): string =>
  number === 0 ? `no ${what}` : number === 1 ? `1 ${what}` : `${number} ${what}s`;

/** How a camera does: how far behind it is shown, and how much was passed over. */
function cameraWords(camera: CameraState | undefined): string {
  if (camera === undefined) return "Live";
  const behind = `${camera.age_s.toFixed(1)} s behind`;
  return camera.dropped > 0 ? `Live · ${behind} · ${camera.dropped} skipped` : `Live · ${behind}`;
}

function waitingCard(upload: Upload): Card {
  const words = upload.stage === "opening" ? "Preparing…" : "Waiting to upload";
  return {
    asset: null,
    name: upload.name,
    status: "waiting",
    words,
    progress: upload.size > 0 ? upload.received / upload.size : 0,
    isShown: false,
  };
}

const percent = (part: number): string => (part < 0 ? "…" : ` ${Math.round(part * 100)} %`);
