import type { Json, JsonObject, Task } from "./types";
import { isObject, objects, text } from "./values";

/** The agent's refusal: a JSON-RPC error. */
export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: Json,
    /** Seconds after which to try again; 0 where the agent does not tell. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** The agent did not answer in JSON-RPC. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** What `WWW-Authenticate` says. */
    readonly challenge = "",
    /** Seconds after which to try again; 0 where the agent does not tell. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** The agent could not be reached, or the connection was lost. */
export class ConnectionError extends Error {}

export interface FieldError {
  /** Found by the page, before anything was sent. */
  local?: boolean;
  field: string;
  message: string;
}

/** What is wrong with which field: 1.0 by google.rpc.BadRequest, 0.3 by `errors`. */
export function fieldErrors(error: unknown): FieldError[] {
  if (!(error instanceof RpcError)) return [];
  if (isObject(error.data)) return listed(error.data);
  return objects(error.data)
    .filter((each) => String(each["@type"]).endsWith("google.rpc.BadRequest"))
    .flatMap((each) => objects(each.fieldViolations))
    .map((each) => fieldError(each.field, each.description));
}

/** What a module that ran found wrong: its task fails with an error among its status's parts. */
export function taskErrors(task: Task | null): FieldError[] {
  if (task?.status.state !== "failed" && task?.status.state !== "rejected") return [];
  const said = task.status.message?.parts ?? [];
  return said.flatMap(({ data }) => (isObject(data) && isObject(data.data) ? listed(data.data) : []));
}

const listed = (data: JsonObject) =>
  objects(data.errors).map((each) => fieldError(each.field, each.message));

const fieldError = (field: unknown, message: unknown): FieldError => ({
  field: text(field) ?? "",
  message: text(message) ?? "is not valid",
});

/** The reason of the error as google.rpc.ErrorInfo has it. */
export function reasonOf(error: RpcError): string | undefined {
  const info = objects(error.data).find((each) => String(each["@type"]).endsWith("ErrorInfo"));
  return text(info?.reason) ?? (isObject(error.data) ? text(error.data.type) : undefined);
}

/** The seconds of `Retry-After` (RFC 9110 §10.2.3): a number of them, or a date. */
export function secondsOf(header: string | null, now = Date.now()): number {
  const seconds = /^\d+$/.test(header ?? "") ? Number(header) : (Date.parse(header ?? "") - now) / 1000;
  return seconds > 0 ? Math.ceil(seconds) : 0;
}

export function describe(error: unknown): string {
  if (error instanceof RpcError) return error.message;
  if (error instanceof HttpError) return `HTTP ${error.status}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}
