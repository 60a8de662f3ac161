import { signal } from "@preact/signals";
import { parseJson, toJson } from "../protocol/json";
import { describe } from "../protocol/errors";
import type { Recorder } from "../protocol/rpc";
import type { Operation, Version } from "../protocol/types";

/** A request and its response as they were sent. */
export interface Wire {
  /** The request line and the header fields, without credentials. */
  request: string;
  /** The body of the request. */
  body: string;
  /** The status line and the header fields of the response. */
  head: string;
  /** The pieces of the response's body, each with the time of its arrival. */
  pieces: { at: number; text: string }[];
  /** Number of characters in `request`, `body` and `pieces`. */
  size: number;
  /** Whether a part of the request or the response is not kept. */
  isCut: boolean;
}

export interface LogEntry {
  id: number;
  /** Null for the request for the Agent Card. */
  operation: Operation | null;
  version: Version;
  lastEventId?: string;
  at: number;
  status?: number;
  /** Duration in milliseconds; undefined while the request runs. */
  took?: number;
  error?: string;
  wire: Wire;
}

const MAX_ENTRIES = 100;
const MAX_SIZE = 1_000_000; // characters of all requests and responses
const MAX_ENTRY_SIZE = 250_000; // characters

/** The latest requests, newest first. */
export const log = signal<LogEntry[]>([]);

let count = 0;

/** Records one request in the log. */
export interface LogRecorder extends Recorder {
  end(error?: unknown): void;
}

/** Add a request to the log; return its recorder. *secretHeader* is the name of the header with the credentials. */
export function logRequest(
  operation: Operation | null,
  version: Version,
  lastEventId?: string,
  secretHeader?: string,
): LogRecorder {
  const wire: Wire = { request: "", body: "", head: "", pieces: [], size: 0, isCut: false };
  const entry: LogEntry = { id: ++count, operation, version, lastEventId, at: Date.now(), wire };
  log.value = [entry, ...log.value.slice(0, MAX_ENTRIES - 1)];
  const update = (changes: Partial<LogEntry>) => {
    log.value = log.value.map((logEntry) => (logEntry.id === entry.id ? { ...logEntry, ...changes } : logEntry));
  };
  return {
    request(headers, body, requestLine = operation ? "POST" : "GET") {
      const headerLines = Object.entries(headers).map(([name, value]) =>
        `${name}: ${name === secretHeader ? "$A2A_TOKEN" : value}`,
      );
      wire.request = [requestLine, ...headerLines].join("\n");
      wire.body = body;
      wire.size += wire.request.length + body.length;
      dropOldest();
    },
    response(status, headers) {
      wire.head = [`HTTP ${status}`, ...[...headers].map(([name, value]) => `${name}: ${value}`)].join("\n");
      update({ status });
    },
    piece(text) {
      wire.isCut ||= wire.size + text.length > MAX_ENTRY_SIZE;
      if (wire.isCut) return;
      wire.pieces.push({ at: Date.now(), text });
      wire.size += text.length;
      dropOldest();
    },
    end(error?) {
      update({ took: Date.now() - entry.at, error: error ? describe(error) : undefined });
    },
  };
}

/** Drop the contents of the oldest entries, so that the log stays within MAX_SIZE. */
function dropOldest(): void {
  let size = 0;
  for (const { wire } of log.value) {
    size += wire.size;
    if (size <= MAX_SIZE || !wire.size) continue;
    size -= wire.size;
    Object.assign(wire, { request: "", body: "", pieces: [], size: 0, isCut: true });
  }
}

/** Indent *source* if it is JSON; otherwise return it unchanged. */
export function indented(source: string): string {
  try {
    return toJson(parseJson(source), 2);
  } catch {
    return source;
  }
}
