/** The card in front of the room: who are you, or why you cannot come in. */

import type { Invitation, Seat } from "../identity";
import { byId, setText } from "./dom";

export class JoinCard {
  private readonly card = byId("join", HTMLElement);
  private readonly form = byId("join-form", HTMLFormElement);
  private readonly button = byId("join-button", HTMLButtonElement);
  private readonly why = byId("join-why", HTMLElement);
  private readonly joinAs = byId("join-as", HTMLElement);
  private readonly name = byId("join-name", HTMLInputElement);
  private readonly department = byId("join-department", HTMLInputElement);
  private readonly room = byId("join-room", HTMLInputElement);
  private submitted: () => void = () => undefined;

  constructor() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submitted();
    });
  }

  /** Ask who comes; an invitation says it already, so that what is typed would not count. */
  ask(room: string, invitation: Invitation | null, joined: (seat: Seat) => void): void {
    this.room.value = room;
    if (invitation !== null) {
      this.offer([this.room]);
      const who = [invitation.name, invitation.department].filter(Boolean).join(", ");
      this.tell(this.joinAs, `You join as ${who}.`);
    }
    this.submitted = () => {
      const [name, department, entered] = [this.name, this.department, this.room].map((input) =>
        input.value.trim(),
      );
      joined({ name: name!, department: department!, room: entered! });
    };
    this.card.hidden = false;
    (invitation === null ? this.name : this.button).focus();
  }

  /** Say for as long as it holds why nobody comes in here, and offer what can be done. */
  turnAway(words: string, offer: string, act: () => void): void {
    this.offer([]);
    this.joinAs.hidden = true;
    this.tell(this.why, words);
    setText(this.button, offer);
    this.submitted = act;
    this.card.hidden = false;
    this.button.focus();
  }

  hide(): void {
    this.card.hidden = true;
  }

  private tell(line: HTMLElement, words: string): void {
    setText(line, words);
    line.hidden = false;
  }

  /** A field that is not offered must not hold the form up either. */
  private offer(offered: readonly HTMLInputElement[]): void {
    for (const input of [this.name, this.department, this.room]) {
      const isOffered = offered.includes(input);
      input.disabled = !isOffered;
      input.closest("label")!.hidden = !isOffered;
    }
  }
}
