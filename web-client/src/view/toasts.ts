/** Short notes at the edge of the page: what went wrong, and what one can do. */

import { element } from "./dom";

export interface Toast {
  readonly text: string;
  /** What the person can do, as a sentence. */
  readonly advice?: string;
  readonly isError?: boolean;
  /** One thing to do at once. */
  readonly action?: { readonly name: string; act(): void };
}

const MAX_SHOWN = 4;
const NOTE_MS = 6_000;
/** Also of a note with something to do: one has to read it, decide and go there. */
const ERROR_MS = 15_000;
/** How much longer a note stays that somebody is still at. */
const LINGER_MS = 2_000;

export const lifetimeMs = ({ isError = false, action }: Toast): number =>
  isError || action !== undefined ? ERROR_MS : NOTE_MS;

export class Toasts {
  constructor(private readonly list: HTMLElement) {}

  show(shown: Toast): void {
    const { text, advice, isError = false, action } = shown;
    const same = [...this.list.children].find((toast) => toast.getAttribute("data-text") === text);
    same?.remove();
    const close = element("button", { type: "button", "aria-label": "Close this note" }, "×");
    const toast = element(
      "div",
      {
        class: isError ? "toast error" : "toast",
        role: isError ? "alert" : "status",
        "data-testid": isError ? "error-toast" : "toast",
        "data-text": text,
      },
      element("p", {}, element("b", {}, text), advice ? ` ${advice}` : ""),
    );
    // Where there is little room a note is one line until it is touched.
    toast.addEventListener("click", () => toast.classList.add("open"));
    if (action) {
      const button = element("button", { type: "button", class: "action" }, action.name);
      button.addEventListener("click", () => {
        toast.remove();
        action.act();
      });
      toast.append(button);
    }
    toast.append(close);
    close.addEventListener("click", () => toast.remove());
    this.list.append(toast);
    while (this.list.children.length > MAX_SHOWN) this.list.firstElementChild!.remove();
    removeAfter(toast, lifetimeMs(shown));
  }
}

function removeAfter(toast: Element, ms: number): void {
  setTimeout(() => {
    if (toast.matches(":hover, :focus-within")) removeAfter(toast, LINGER_MS);
    else toast.remove();
  }, ms);
}
