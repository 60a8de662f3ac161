import { signal } from "@preact/signals";
import { describe } from "../protocol/errors";
import type { Operation, Version } from "../protocol/types";

export interface LogEntry {
  id: number;
  operation: Operation;
  version: Version;
  lastEventId?: string;
  at: number;
  /** Milliseconds; undefined while the request is under way. */
  took?: number;
  error?: string;
}

const KEPT = 100;

/** The latest requests, newest first. */
export const log = signal<LogEntry[]>([]);

let count = 0;

export function logged(operation: Operation, version: Version, lastEventId?: string) {
  const entry: LogEntry = {
    id: ++count,
    operation,
    version,
    lastEventId,
    at: Date.now(),
  };
  log.value = [entry, ...log.value.slice(0, KEPT - 1)];
  return {
    ended(error?: unknown): void {
      const more = { took: Date.now() - entry.at, error: error && describe(error) };
      log.value = log.value.map((each) =>
        each.id === entry.id ? ({ ...each, ...more } as LogEntry) : each,
      );
    },
  };
}
