/** The selected mark's name and severity, to read and to change. */

import type { PatchAnnotation } from "../protocol/types.gen";
import { originOf, type DrawnMark } from "./annotations";
import { byId, setAttributes, setText } from "./dom";

export interface InspectorNews {
  patched(id: string, change: Pick<PatchAnnotation, "label" | "severity">): void;
  deleted(id: string): void;
}

export class Inspector {
  private shown: DrawnMark | null = null;
  private isEdited = false;
  private readonly form = byId("inspector", HTMLFormElement);
  private readonly by = byId("inspector-by", HTMLElement);
  private readonly label = byId("inspector-label", HTMLInputElement);
  private readonly severity = byId("inspector-severity", HTMLSelectElement);
  private readonly delete = byId("inspector-delete", HTMLButtonElement);

  constructor(private readonly news: InspectorNews) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.commitLabel();
      byId("viewer", HTMLElement).focus();
    });
    this.label.addEventListener("input", () => (this.isEdited = true));
    this.label.addEventListener("change", () => this.commitLabel());
    this.severity.addEventListener("change", () => {
      const severity = this.severity.value as NonNullable<PatchAnnotation["severity"]>;
      if (this.shown !== null) this.news.patched(this.id(this.shown), { severity });
    });
    this.delete.addEventListener("click", () => {
      if (this.shown !== null) this.news.deleted(this.id(this.shown));
    });
  }

  show(drawn: DrawnMark | null, mayEdit: boolean): void {
    const before = this.shown;
    if (before !== null && (drawn === null || this.id(drawn) !== this.id(before)))
      this.commitLabel();
    this.shown = drawn;
    this.form.hidden = drawn === null;
    if (drawn === null) return;
    const { annotation } = drawn.mark;
    const isOther = before === null || this.id(before) !== annotation.id;
    // What somebody is typing here is not replaced by a peer's edit; theirs shows after this one.
    if (isOther || !this.isEdited) this.label.value = annotation.label ?? "";
    this.severity.value = annotation.severity ?? "note";
    this.label.disabled = this.severity.disabled = this.delete.disabled = !mayEdit;
    const name = originOf(drawn);
    setText(this.by, drawn.pending ? `${name} · not saved yet` : name);
    setAttributes(this.by, { title: name });
  }

  /** Go to the name of the mark, to write it. */
  focus(): void {
    if (this.form.hidden || this.label.disabled) return;
    this.label.focus();
    this.label.select();
  }

  private commitLabel(): void {
    if (this.shown === null || !this.isEdited) return;
    this.isEdited = false;
    const label = this.label.value;
    if (label !== (this.shown.mark.annotation.label ?? "")) {
      this.news.patched(this.id(this.shown), { label });
    }
  }

  private id(drawn: DrawnMark): string {
    return drawn.mark.annotation.id;
  }
}
