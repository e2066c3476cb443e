/** What a person can do about an error of the server, by its code. */

import type { Invitation } from "./identity";
import type { ErrorCode } from "./protocol/types.gen";

const ADVICE: Partial<Record<ErrorCode, string>> = {
  too_big: "Make it shorter.",
  not_storable: "Remove unusual characters and try again.",
  unauthenticated: "Ask for a new link to this room.",
  token_expired: "Ask for a new link to this room.",
  forbidden: "Ask the chair of this room for permission.",
  replaced: "Go on in the other tab, or reload this one.",
  rate_limited: "Wait a moment, then try again.",
  overloaded: "Many questions are under way; try again in a moment.",
  asset_unknown: "Choose another picture.",
  asset_not_ready: "Wait until the upload is complete.",
  annotation_deleted: "You can draw it again as a new mark.",
  room_full: "Start a new room.",
  unavailable: "Nothing was saved. Try again in a moment.",
  stream_limit: "Wait until other uploads are complete.",
  size_mismatch: "Add the file again.",
  hash_mismatch: "The file changed on its way. Add it again.",
  upload_abandoned: "Add the file again.",
  media_unsupported: "Use a JPEG, PNG, WebP, HEIC, AVIF, TIFF or BMP picture.",
  media_empty: "Choose a file that is not empty.",
  media_truncated: "Save or export the picture again, then add it.",
  media_corrupt: "Save or export the picture again, then add it.",
  media_too_many_pixels: "Scale the picture down, then add it.",
  media_too_dense: "Save or export the picture again in another format, then add it.",
  media_too_big: "Make the file smaller, then add it.",
  media_timeout: "Try again, or use another format.",
  decoder_lost: "Add the file again.",
  turn_interrupted: "Ask again.",
  context_full: "Shorten the question, or start a new room.",
  schema_unsupported: "Use a simpler JSON schema.",
  language_unsupported:
    "The loaded model answers English only. Ask in English, or ask your administrator for " +
    "another model.",
  engine_lost: "The model restarts. Ask again in a moment.",
  internal: "Try again; if it stays, tell whoever runs this server.",
};

export const adviceFor = (code: ErrorCode): string => ADVICE[code] ?? "";

/** A server's message as a sentence: capital first, full stop last. */
export function sentence(message: string): string {
  const [first = "", ...rest] = message.trim();
  const text = first.toUpperCase() + rest.join("");
  return text === "" || /[.!?。！？]$/u.test(text) ? text : `${text}.`;
}

/** Why a room closed to this page for good, by the close code. */
export function endWords(code: number): string {
  switch (code) {
    case 4409:
      return "This room is open in another tab or window of yours.";
    default:
      return "The server ended this connection. Reload the page to try again.";
  }
}

/** Whether the server ended the connection because of who comes: not to be mended in the room. */
export const isTurnedAway = (code: number): boolean => code === 4401 || code === 4403;

/** Why nobody comes in, by the server's last word before it closed. */
export function turnedAwayWords(
  error: ErrorCode | null,
  token: string | null,
  invitation: Invitation | null,
  room: string,
): string {
  if (error === "token_expired") return "Your invitation has ended; ask for a new link.";
  if (error === "unauthenticated") {
    return token === null
      ? "This server needs an invitation link."
      : "Your invitation is not valid; ask for a new link.";
  }
  const isElsewhere = invitation !== null && invitation.room !== room;
  return isElsewhere ? "Your invitation is for another room." : "You have no access to this room.";
}
