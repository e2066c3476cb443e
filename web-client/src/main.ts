/** The page starts here: who are you, which room, then the room. */

import "./style.css";
import type { Surroundings } from "./connection";
import { turnedAwayWords } from "./advice";
import { CLIENT, Memory, invitationOf, takeToken, type Seat } from "./identity";
import { Session } from "./protocol/session";
import type { ErrorCode } from "./protocol/types.gen";
import { RoomPage } from "./roompage";
import { byId, setAttributes, setText } from "./view/dom";
import { JoinCard } from "./view/joincard";
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

/** The room's address, for others to come to; who they are is not in it. */
const addressOf = (room: string): string =>
  `${location.pathname}?${new URLSearchParams({ room }).toString()}`;

function enter(seat: Seat, memory: Memory, card: JoinCard): RoomPage {
  memory.keepSeat(seat);
  card.hide();
  byId("page", HTMLElement).hidden = false;
  history.replaceState(history.state, "", addressOf(seat.room));
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
  const door = {
    cameIn: () => {
      card.hide();
      byId("page", HTMLElement).hidden = false;
    },
    turnedAway: (error: ErrorCode | null) => {
      byId("page", HTMLElement).hidden = true;
      turnAway(seat, error, memory, card);
    },
  };
  const page = new RoomPage(session, room, socketUrl(room), memory, browser, toasts, door);
  byId("copy-link", HTMLElement).addEventListener("click", () => copyLink(room, memory, toasts));
  byId("leave", HTMLElement).addEventListener("click", () => {
    page.leave();
    location.reload();
  });
  page.start();
  return page;
}

function turnAway(seat: Seat, error: ErrorCode | null, memory: Memory, card: JoinCard): void {
  const token = memory.token();
  const invitation = invitationOf(token);
  const words = turnedAwayWords(error, token, invitation, seat.room);
  const other = invitation?.room ?? "";
  if (error !== "forbidden" || other === "" || other === seat.room) {
    card.turnAway(words, "Try again", () => location.reload());
    return;
  }
  card.turnAway(words, `Go to room ${other}`, () => {
    memory.keepSeat({ ...seat, room: other });
    location.assign(addressOf(other));
  });
}

function copyLink(room: string, memory: Memory, toasts: Toasts): void {
  const address = location.origin + addressOf(room);
  const advice = memory.token() === null ? "" : "Each person needs an invitation of their own.";
  const told = (text: string): void => toasts.show({ text, advice });
  // A page without HTTPS has no clipboard.
  const copied = navigator.clipboard?.writeText(address) ?? Promise.reject(new Error("none"));
  copied.then(
    () => told("Link copied."),
    () => told(`The link to this room is ${address}`),
  );
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
const card = new JoinCard();
const invitation = invitationOf(memory.token());
const room = new URLSearchParams(location.search).get("room");
const seat = memory.seat();
let page: RoomPage | null = null;
window.addEventListener("hashchange", () => {
  const renewed = takeToken(location, history);
  if (renewed === null) return;
  memory.keepToken(renewed);
  if (page === null) location.reload();
  else page.refresh(renewed);
});
if (seat !== null && (room === null || room === seat.room)) page = enter(seat, memory, card);
else {
  const asked = room ?? (invitation?.room || seat?.room) ?? "lobby";
  card.ask(asked, invitation, (taken) => (page = enter(taken, memory, card)));
}
