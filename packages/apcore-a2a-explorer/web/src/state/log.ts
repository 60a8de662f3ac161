import { signal } from "@preact/signals";
import { describe } from "../protocol/errors";
import type { Operation, Version } from "../protocol/types";

export interface LogEntry {
  id: number;
  operation: Operation;
  version: Version;
  lastEventId?: string;
  at: number;
  /** Duration in milliseconds; undefined while the request runs. */
  took?: number;
  error?: string;
}

const MAX_ENTRIES = 100;

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
  log.value = [entry, ...log.value.slice(0, MAX_ENTRIES - 1)];
  return {
    ended(error?: unknown): void {
      const outcome = { took: Date.now() - entry.at, error: error && describe(error) };
      log.value = log.value.map((each) =>
        each.id === entry.id ? ({ ...each, ...outcome } as LogEntry) : each,
      );
    },
  };
}
