/** Who sits at this page, kept for the life of the tab: a reload comes back as the same session. */

import type { Act } from "./protocol/outbox";

export interface Seat {
  name: string;
  department: string;
  room: string;
}

const SESSION = "consilium.session";
const SEAT = "consilium.seat";
const TOKEN = "consilium.token";
const TOLD = "consilium.told";
const outboxKey = (room: string): string => `consilium.outbox.${room}`;
const pictureKey = (room: string): string => `consilium.picture.${room}`;

export const CLIENT = "web/0.1.0";

/** 128 random bits, safe in a message. `crypto.randomUUID` is missing on plain-HTTP pages. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Memory {
  constructor(private readonly storage: Storage) {}

  session(): string {
    const known = this.storage.getItem(SESSION);
    if (known !== null) return known;
    const made = newId();
    this.storage.setItem(SESSION, made);
    return made;
  }

  /** The seat that was taken in this tab and not left. */
  seat(): Seat | null {
    return this.parsed<Seat>(SEAT);
  }

  keepSeat(seat: Seat): void {
    this.storage.setItem(SEAT, JSON.stringify(seat));
  }

  /** Forget who sat here: the next person at this tab is somebody else. */
  leave(room: string): void {
    const keys = [SESSION, SEAT, TOKEN, TOLD, outboxKey(room), pictureKey(room)];
    for (const key of keys) this.storage.removeItem(key);
  }

  token(): string | null {
    return this.storage.getItem(TOKEN);
  }

  keepToken(token: string): void {
    this.storage.setItem(TOKEN, token);
  }

  /** Whether a notice is new to whoever sits here; from now on it is not. */
  isNews(text: string): boolean {
    const told = this.parsed<string[]>(TOLD) ?? [];
    if (told.includes(text)) return false;
    this.keep(TOLD, [...told, text]);
    return true;
  }

  /** The picture that was looked at last. */
  picture(room: string): string | null {
    return this.parsed<string>(pictureKey(room));
  }

  keepPicture(room: string, asset: string): void {
    this.keep(pictureKey(room), asset);
  }

  acts(room: string): Act[] {
    return this.parsed<Act[]>(outboxKey(room)) ?? [];
  }

  /** False when the browser has no place for them; they are then kept in memory alone. */
  keepActs(room: string, acts: readonly Act[]): boolean {
    if (acts.length > 0) return this.keep(outboxKey(room), acts);
    this.storage.removeItem(outboxKey(room));
    return true;
  }

  private keep(key: string, value: unknown): boolean {
    try {
      this.storage.setItem(key, JSON.stringify(value));
      return true;
    } catch (error) {
      if (error instanceof DOMException) return false;
      throw error;
    }
  }

  private parsed<T>(key: string): T | null {
    try {
      return JSON.parse(this.storage.getItem(key) ?? "null") as T | null;
    } catch {
      return null;
    }
  }
}

/** What an invitation says about who comes; only the server knows whether it is good. */
export interface Invitation {
  name: string;
  department: string;
  room: string;
}

/** Read the middle part of a token, to show it; null when there is nothing to read. */
export function invitationOf(token: string | null): Invitation | null {
  const [, payload = ""] = (token ?? "").split(".");
  try {
    const binary = atob(payload.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
    const text = (key: string): string => (typeof claims[key] === "string" ? claims[key] : "");
    const name = text("name") || text("sub");
    return name === "" ? null : { name, department: text("department"), room: text("room") };
  } catch {
    return null;
  }
}

/** Take the token out of the address, where it could be copied along with the room's link. */
export function takeToken(location: Location, history: History): string | null {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  return token;
}
