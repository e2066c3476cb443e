/** The golden vectors that the Python tests read as well. */

import { readFileSync } from "node:fs";

export function vectors<T>(name: string): T {
  const path = new URL(`../../tests/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")) as T;
}
