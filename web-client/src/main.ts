/** The page starts here: who are you, which room, then the room. */

import "./style.css";
import type { Surroundings } from "./connection";
import { CLIENT, Memory, takeToken, type Seat } from "./identity";
import { Session } from "./protocol/session";
import { RoomPage } from "./roompage";
import { byId, setAttributes, setText } from "./view/dom";
import { Toasts } from "./view/toasts";

const browser: Surroundings = {
  openSocket: (url, protocol) => new WebSocket(url, protocol),
  setTimer: (act, seconds) => window.setTimeout(act, seconds * 1000),
  clearTimer: (timer) => window.clearTimeout(timer),
  random: () => Math.random(),
};

function socketUrl(room: string): string {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return `${scheme}//${location.host}/v1/rooms/${encodeURIComponent(room)}`;
}

function enter(seat: Seat, memory: Memory): void {
  memory.keepSeat(seat);
  byId("join", HTMLElement).hidden = true;
  byId("page", HTMLElement).hidden = false;
  setText(byId("room-name", HTMLElement), seat.room);
  document.title = `${seat.room} · Consilium`;
  const { name, department, room } = seat;
  const identity = {
    session: memory.session(),
    client: CLIENT,
    name,
    department,
    token: memory.token(),
  };
  const session = new Session(identity, memory.acts(room));
  const toasts = new Toasts(byId("toasts", HTMLElement));
  const page = new RoomPage(session, room, socketUrl(room), memory, browser, toasts);
  window.addEventListener("hashchange", () => {
    const token = takeToken(location, history);
    if (token === null) return;
    memory.keepToken(token);
    page.refresh(token);
  });
  byId("leave", HTMLElement).addEventListener("click", () => {
    page.leave();
    location.reload();
  });
  page.start();
}

function askWho(room: string, memory: Memory): void {
  const join = byId("join", HTMLElement);
  const form = byId("join-form", HTMLFormElement);
  const name = byId("join-name", HTMLInputElement);
  byId("join-room", HTMLInputElement).value = room;
  if (memory.token() !== null) {
    // The token says who comes; what is typed here would not count.
    name.required = false;
    setText(byId("join-note", HTMLElement), "Your invitation says who you are.");
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const entry = new FormData(form);
    const field = (key: string): string => String(entry.get(key) ?? "").trim();
    enter({ name: field("name"), department: field("department"), room: field("room") }, memory);
  });
  join.hidden = false;
  name.focus();
}

/** On a narrow screen one panel shows at a time; on a wide one the tabs are not there. */
function listenForTabs(): void {
  const side = byId("side", HTMLElement);
  const tabs = [...side.querySelectorAll<HTMLElement>("[role=tab]")];
  const choose = (chosen: HTMLElement): void => {
    setAttributes(side, { "data-tab": chosen.dataset["tab"] ?? null });
    for (const tab of tabs) {
      setAttributes(tab, {
        "aria-selected": String(tab === chosen),
        tabindex: tab === chosen ? 0 : -1,
      });
    }
  };
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step === undefined) return;
      const next = tabs[(index + step + tabs.length) % tabs.length]!;
      choose(next);
      next.focus();
    });
  }
  choose(tabs[0]!);
}

const memory = new Memory(sessionStorage);
const token = takeToken(location, history);
if (token !== null) memory.keepToken(token);
listenForTabs();
const room = new URLSearchParams(location.search).get("room");
const seat = memory.seat();
if (seat !== null && (room === null || room === seat.room)) enter(seat, memory);
else askWho(room ?? seat?.room ?? "lobby", memory);
