/** Data that survives a reload: `sessionStorage` keeps it until the tab is closed or the user signs out. */

import { parseJson, toJson } from "../protocol/json";
import { base } from "./agent";

const MAX_SIZE = 1_000_000; // characters of JSON for each kind of entry

const nameOf = (kind: string) => `a2a-explorer.${kind} ${base}`;
let isForgotten = false;

/**
 * Return the entries that were saved before a reload of the page. When the page is left or hidden,
 * save the entries that *collect* returns; if the total exceeds MAX_SIZE, drop the last entries.
 */
export function keepInSession<T>(kind: string, collect: () => [string, T][]): Map<string, T> {
  const save = () => {
    if (!isForgotten) store(nameOf(kind), collect());
  };
  addEventListener("pagehide", save);
  document.addEventListener("visibilitychange", () => document.hidden && save());
  try {
    const stored: unknown = parseJson(sessionStorage.getItem(nameOf(kind)) ?? "[]");
    return new Map(Array.isArray(stored) ? (stored as [string, T][]) : []);
  } catch {
    return new Map();
  }
}

/** Remove all entries, and save nothing more: the page is about to be reloaded for another user. */
export function forgetSession(): void {
  isForgotten = true;
  for (const kind of ["drafts", "runs"]) {
    try {
      sessionStorage.removeItem(nameOf(kind));
    } catch {
      return;
    }
  }
}

function store(name: string, entries: [string, unknown][]): void {
  const entryJsons: string[] = [];
  let size = 0;
  for (const entry of entries) {
    const json = toJson(entry);
    size += json.length;
    if (size > MAX_SIZE) break;
    entryJsons.push(json);
  }
  try {
    if (entryJsons.length) sessionStorage.setItem(name, `[${entryJsons.join()}]`);
    else sessionStorage.removeItem(name);
  } catch {
    return;
  }
}
