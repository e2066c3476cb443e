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
const ERROR_MS = 15_000;

export class Toasts {
  constructor(private readonly list: HTMLElement) {}

  show({ text, advice, isError = false, action }: Toast): void {
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
    setTimeout(() => toast.remove(), isError ? ERROR_MS : NOTE_MS);
  }
}
