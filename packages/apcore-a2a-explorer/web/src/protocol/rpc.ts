import type { RpcRequest } from "./dialect";
import { ConnectionError, HttpError, RpcError, secondsOf } from "./errors";
import { parseJson, toJson } from "./json";
import { EventParser } from "./sse";
import type { JsonObject } from "./types";
import { isObject, object, text } from "./values";

export interface Endpoint {
  url: string;
  headers: Record<string, string>;
}

/** Records requests and responses as they are sent and received. */
export interface Recorder {
  request(headers: Record<string, string>, body: string): void;
  response(status: number, headers: Headers): void;
  /** A piece of the response's body. */
  piece(text: string): void;
}

export interface Exchange {
  signal?: AbortSignal;
  lastEventId?: string;
  /** Id of the trace that the request belongs to (W3C Trace Context). */
  traceId?: string;
  /** Whether the request is a poll, which is not logged. */
  isPoll?: boolean;
  recorder?: Recorder;
}

let lastId = 0;

export const envelope = (request: RpcRequest, id: number) => ({
  jsonrpc: "2.0" as const,
  id,
  ...request,
});

/** Send a request; return the result in the response. */
export async function call(endpoint: Endpoint, request: RpcRequest, exchange: Exchange = {}) {
  const response = await post(endpoint, request, exchange, "application/json");
  return resultOf(await readJson(response, exchange));
}

/** Send a request; yield the events of the response as they arrive. */
export async function* stream(
  endpoint: Endpoint,
  request: RpcRequest,
  exchange: Exchange = {},
  onOpen: () => void = () => {},
): AsyncGenerator<{ id?: string; result: unknown }> {
  const response = await post(endpoint, request, exchange, "text/event-stream");
  if (!response.headers.get("content-type")?.includes("text/event-stream")) {
    onOpen();
    yield { result: resultOf(await readJson(response, exchange)) };
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
        yield { id: event.id, result: resultOf(parse(event.data)) };
      }
    }
  } finally {
    pieces.cancel().catch(() => {});
  }
}

async function post(
  endpoint: Endpoint,
  request: RpcRequest,
  exchange: Exchange,
  accept: string,
): Promise<Response> {
  const headers: Record<string, string> = {
    "Content-Type": "application/json",
    Accept: accept,
    ...endpoint.headers,
  };
  if (exchange.lastEventId !== undefined) headers["Last-Event-ID"] = exchange.lastEventId;
  if (exchange.traceId) headers.traceparent = `00-${exchange.traceId}-${exchange.traceId.slice(16)}-01`;
  const body = toJson(envelope(request, ++lastId));
  exchange.recorder?.request(headers, body);
  const init = { method: "POST", headers, body, signal: exchange.signal };
  const response = await withConnectionErrors(
    () => fetch(endpoint.url, init),
    "The agent can't be reached, or the connection was lost before it responded. Try again.",
  );
  exchange.recorder?.response(response.status, response.headers);
  if (response.ok) return response;
  const content = await response.text().catch(() => "");
  exchange.recorder?.piece(content);
  const { jsonrpc, error } = object(parse(content, null)) ?? {};
  const wait = secondsOf(response.headers.get("retry-after"));
  if (jsonrpc && isObject(error) && response.status !== 401) throw refusal(error, wait);
  throw new HttpError(
    response.status,
    (isObject(error) && text(error.message)) || response.statusText || "no reason given",
    response.headers.get("www-authenticate") ?? "",
    wait,
  );
}

async function readJson(response: Response, { recorder }: Exchange): Promise<unknown> {
  const content = await withConnectionErrors(() => response.text());
  recorder?.piece(content);
  return parse(content);
}

function parse(source: string, fallback?: null): unknown {
  try {
    return parseJson(source);
  } catch {
    if (fallback === null) return null;
    throw new HttpError(200, "the response is not JSON. Check the agent, and any proxy in front of it.");
  }
}

function resultOf(response: unknown): unknown {
  const source = object(response) ?? {};
  const error = source.error;
  if (isObject(error)) throw refusal(error);
  if (!("result" in source)) throw new HttpError(200, "the response is not JSON-RPC. Check the agent, and any proxy in front of it.");
  return source.result;
}

const refusal = (error: JsonObject, retryAfter = 0) =>
  new RpcError(Number(error.code), text(error.message) ?? "No reason given", error.data, retryAfter);

/** Run *action*; replace fetch's TypeError for a broken connection by a ConnectionError. */
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
