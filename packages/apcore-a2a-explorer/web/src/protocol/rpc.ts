import type { Binding } from "./binding";
import type { Dialect } from "./dialect";
import { ConnectionError, HttpError, secondsOf } from "./errors";
import { parseJson } from "./json";
import { EventParser } from "./sse";
import type { Operation } from "./types";
import { isObject, object, text } from "./values";

export interface Endpoint {
  /** Return the URL for a path of the interface. */
  url: (path: string) => string;
  binding: Binding;
  dialect: Dialect;
  headers: Record<string, string>;
  /** Header fields that only the proxy to the agent reads; they are not recorded. */
  proxyHeaders: Record<string, string>;
}

/** Records requests and responses as they are sent and received. */
export interface Recorder {
  request(headers: Record<string, string>, body: string, requestLine?: string): void;
  response(status: number, headers: Headers): void;
  /** A piece of the response's body. */
  piece(text: string): void;
}

/** The options of a request and its response. */
export interface Exchange {
  signal?: AbortSignal;
  lastEventId?: string;
  /** Id of the trace that the request belongs to (W3C Trace Context). */
  traceId?: string;
  /** Whether the request is left out of the log, as polls are. */
  isUnlogged?: boolean;
  recorder?: Recorder;
}

let lastId = 0;

/** Send a request; return the result in the response. */
export async function call(endpoint: Endpoint, operation: Operation, exchange: Exchange = {}) {
  const response = await send(endpoint, operation, exchange, "application/json");
  return resultOf(endpoint, operation, await readJson(response, exchange));
}

/** Send a request; yield the events of the response as they arrive. */
export async function* stream(
  endpoint: Endpoint,
  operation: Operation,
  exchange: Exchange = {},
  onOpen: () => void = () => {},
): AsyncGenerator<{ id?: string; result: unknown }> {
  const response = await send(endpoint, operation, exchange, "text/event-stream");
  if (!response.headers.get("content-type")?.includes("text/event-stream")) {
    onOpen();
    yield { result: resultOf(endpoint, operation, await readJson(response, exchange)) };
    return;
  }
  onOpen();
  const parser = new EventParser();
  const pieces = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await withConnectionErrors(() => pieces.read());
      if (done) return;
      exchange.recorder?.piece(value);
      for (const event of parser.feed(value)) {
        yield { id: event.id, result: resultOf(endpoint, operation, parse(event.data)) };
      }
    }
  } finally {
    pieces.cancel().catch(() => {});
  }
}

async function send(
  endpoint: Endpoint,
  operation: Operation,
  exchange: Exchange,
  accept: string,
): Promise<Response> {
  const { verb, path, body } = endpoint.binding.request(endpoint.dialect, operation, ++lastId);
  const headers: Record<string, string> = {
    ...(body ? { "Content-Type": "application/json" } : {}),
    Accept: accept,
    ...endpoint.headers,
  };
  if (exchange.lastEventId !== undefined) headers["Last-Event-ID"] = exchange.lastEventId;
  if (exchange.traceId) headers.traceparent = `00-${exchange.traceId}-${exchange.traceId.slice(16)}-01`;
  exchange.recorder?.request(headers, body, path ? `${verb} ${path}` : verb);
  const init = {
    method: verb,
    headers: { ...headers, ...endpoint.proxyHeaders },
    body: body || undefined,
    signal: exchange.signal,
  };
  const response = await withConnectionErrors(
    () => fetch(endpoint.url(path), init),
    "The agent can't be reached, or the connection was lost before it responded. Try again.",
  );
  exchange.recorder?.response(response.status, response.headers);
  if (response.ok) return response;
  const content = await response.text().catch(() => "");
  exchange.recorder?.piece(content);
  const source = object(parse(content, null));
  const retryAfter = secondsOf(response.headers.get("retry-after"));
  const protocolError = response.status === 401 ? undefined : endpoint.binding.error(source, response.status, retryAfter);
  if (protocolError) throw protocolError;
  const error = source?.error;
  throw new HttpError(
    response.status,
    (isObject(error) && text(error.message)) || response.statusText || "no reason given",
    response.headers.get("www-authenticate") ?? "",
    retryAfter,
  );
}

async function readJson(response: Response, { recorder }: Exchange): Promise<unknown> {
  const content = await withConnectionErrors(() => response.text());
  recorder?.piece(content);
  return content.trim() ? parse(content) : {};
}

function parse(source: string, fallback?: null): unknown {
  try {
    return parseJson(source);
  } catch {
    if (fallback === null) return null;
    throw new HttpError(200, "the response is not JSON. Check the agent, and any proxy in front of it.");
  }
}

function resultOf({ binding }: Endpoint, operation: Operation, source: unknown): unknown {
  const error = isObject(object(source)?.error) ? binding.error(source, 200, 0) : undefined;
  if (error) throw error;
  const result = isObject(source) ? binding.result(operation, source) : undefined;
  if (result === undefined) throw new HttpError(200, "the response is not A2A. Check the agent, and any proxy in front of it.");
  return result;
}

/** Run *action*. Its errors become ConnectionErrors, except an AbortError. */
async function withConnectionErrors<T>(
  action: () => Promise<T>,
  message = "The connection was lost before the response was complete. Try again.",
): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ConnectionError(message);
  }
}
