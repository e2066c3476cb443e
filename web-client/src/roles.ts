/** What a role may do in a room, as the server decides it; here it decides what is offered. */

import type { Role } from "./protocol/types.gen";

export const mayWrite = (role: Role): boolean => role === "chair" || role === "member";

export const mayUpload = (role: Role): boolean => mayWrite(role) || role === "camera";

/** Said in the place of what is not offered; "" for who may do everything. */
export function roleNote(role: Role): string {
  if (mayWrite(role)) return "";
  const article = role === "auditor" || role === "observer" ? "an" : "a";
  const may = mayUpload(role) ? "look and add pictures" : "look and read";
  return `You are here as ${article} ${role}: you can ${may}.`;
}
