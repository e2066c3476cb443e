/** Offer only what the own role may do: a tool that the server refuses is a trap. */

import type { Role } from "../protocol/types.gen";
import { mayUpload, mayWrite, roleNote } from "../roles";
import { byId, setText } from "./dom";

export function showRole(role: Role): void {
  const isWriter = mayWrite(role);
  byId("tools", HTMLElement).hidden = !isWriter;
  byId("composer", HTMLElement).hidden = !isWriter;
  for (const id of ["add-files", "camera"]) byId(id, HTMLElement).hidden = !mayUpload(role);
  const note = byId("role-note", HTMLElement);
  setText(note, roleNote(role));
  note.hidden = isWriter;
  if (isWriter) return;
  setText(byId("transcript-empty", HTMLElement), "Questions and answers appear here.");
}
