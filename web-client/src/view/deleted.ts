/** Which marks were deleted here, so that the last one can come back. */

export class DeletedMarks {
  private readonly ids: string[] = [];

  add(id: string): void {
    this.remove(id);
    this.ids.push(id);
  }

  /** The mark was brought back in another way. */
  remove(id: string): void {
    const index = this.ids.indexOf(id);
    if (index >= 0) this.ids.splice(index, 1);
  }

  /** The last one that is still deleted; it is not given again. */
  takeLast(isShown: (id: string) => boolean): string | null {
    for (let id = this.ids.pop(); id !== undefined; id = this.ids.pop()) {
      if (!isShown(id)) return id;
    }
    return null;
  }
}

type Press = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">;

/** Ctrl+Z or Cmd+Z; where text is written it belongs to the text. */
export function isUndo(event: Press): boolean {
  const isAlone = !event.shiftKey && !event.altKey;
  return (event.ctrlKey || event.metaKey) && isAlone && event.key.toLowerCase() === "z";
}
