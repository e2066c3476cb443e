/** Where one writes: to the model, or to the people in the room. */

import { byId, setAttributes, setText } from "./dom";

export interface ComposerNews {
  /** False when the text could not be taken; it then stays in the box. */
  asked(text: string, interrupts: string | null): boolean;
  said(text: string): boolean;
  interrupted(turn: string): void;
  typing(typing: boolean): void;
  /** On when it was off and the other way round; `asks` when the model is to be asked. */
  microphonePressed(asks: boolean): void;
}

/** How long after the last key somebody still counts as writing. */
const TYPING_MS = 2_500;

export class Composer {
  private running: string | null = null;
  private typingTimer: number | null = null;
  private readonly box = byId("question", HTMLTextAreaElement);
  private readonly stop = byId("interrupt", HTMLButtonElement);
  private readonly microphone = byId("microphone", HTMLButtonElement);
  private readonly voiceMode = byId("voice-mode", HTMLButtonElement);
  private readonly note = byId("composer-note", HTMLElement);

  constructor(private readonly news: ComposerNews) {
    byId("composer", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      this.take((text) => news.asked(text, null));
    });
    byId("comment", HTMLButtonElement).addEventListener("click", () => this.take(news.said));
    this.voiceMode.addEventListener("click", () => {
      const isOn = this.voiceMode.ariaPressed === "true";
      setAttributes(this.voiceMode, { "aria-pressed": String(!isOn) });
    });
    this.microphone.addEventListener("click", () =>
      news.microphonePressed(this.voiceMode.ariaPressed === "true"),
    );
    this.stop.addEventListener("click", () => this.interrupt());
    this.box.addEventListener("keydown", (event) => {
      // While a Chinese or Japanese word is being composed, Enter chooses the word.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.take((text) => news.asked(text, null));
    });
    this.box.addEventListener("input", () => this.typed());
  }

  render(running: string | null, engineReady: boolean): void {
    this.running = running;
    this.stop.hidden = running === null;
    setText(this.note, engineReady ? "" : "The model is starting; questions wait for it.");
    this.name();
  }

  renderMicrophone(isOn: boolean): void {
    setAttributes(this.microphone, { "aria-pressed": String(isOn) });
    setText(this.microphone, isOn ? "Stop speaking" : "Microphone");
    // Whether it asks is said when a recording begins.
    this.voiceMode.disabled = isOn;
  }

  /** Put a refused text back, unless something else is being written already. */
  giveBack(text: string): void {
    if (this.box.value === "") this.box.value = text;
  }

  private interrupt(): void {
    const { running } = this;
    if (running === null) return;
    if (this.box.value.trim() === "") this.news.interrupted(running);
    else this.take((text) => this.news.asked(text, running));
  }

  private take(use: (text: string) => boolean): void {
    const text = this.box.value.trim();
    if (text === "" || !use(text)) return;
    this.box.value = "";
    this.name();
    this.endTyping();
  }

  private name(): void {
    const hasText = this.box.value.trim() !== "";
    setText(this.stop, hasText ? "Interrupt and ask" : "Interrupt");
  }

  private typed(): void {
    this.name();
    if (this.typingTimer === null) this.news.typing(true);
    else window.clearTimeout(this.typingTimer);
    this.typingTimer = window.setTimeout(() => this.endTyping(), TYPING_MS);
  }

  private endTyping(): void {
    if (this.typingTimer === null) return;
    window.clearTimeout(this.typingTimer);
    this.typingTimer = null;
    this.news.typing(false);
  }
}
