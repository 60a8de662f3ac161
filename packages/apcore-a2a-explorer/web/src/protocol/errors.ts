import type { Json, JsonObject, Task } from "./types";
import { isObject, objects, text } from "./values";

/** A JSON-RPC error from the agent. */
export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: Json,
    /** Seconds to wait before trying again; 0 if the agent does not specify them. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** A response that has no result and no protocol error, or a response with status 401. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The value of `WWW-Authenticate`. */
    readonly challenge = "",
    /** Seconds to wait before trying again; 0 if the agent does not specify them. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** Whether *error* means that the agent is overloaded, or that a rate limit has been reached. */
export const isBusy = (error: unknown) =>
  (error instanceof RpcError && error.code === -32029) ||
  (error instanceof HttpError && [429, 503].includes(error.status));

/** The agent could not be reached, or the connection was lost. */
export class ConnectionError extends Error {}

export interface FieldError {
  /** Whether the page found the error before sending. */
  local?: boolean;
  field: string;
  message: string;
}

/** The field errors in a protocol error: google.rpc.BadRequest in 1.0, `errors` in 0.3. */
export function fieldErrors(error: unknown): FieldError[] {
  if (!(error instanceof RpcError)) return [];
  if (isObject(error.data)) return fieldErrorsIn(error.data);
  return objects(error.data)
    .filter((detail) => String(detail["@type"]).endsWith("google.rpc.BadRequest"))
    .flatMap((detail) => objects(detail.fieldViolations))
    .map((violation) => fieldError(violation.field, violation.description));
}

/** The field errors in the status message of a failed or rejected task. */
export function taskErrors(task: Task | null): FieldError[] {
  if (task?.status.state !== "failed" && task?.status.state !== "rejected") return [];
  const parts = task.status.message?.parts ?? [];
  return parts.flatMap(({ data }) => (isObject(data) && isObject(data.data) ? fieldErrorsIn(data.data) : []));
}

/** The code and the type of the error that ended a task, if the agent reports them. */
export function failureOf(task: Task | null): { code?: string; type?: string } {
  const parts = task?.status.message?.parts ?? [];
  const details = parts.map(({ data }) => data).find((candidate) => isObject(candidate) && "code" in candidate);
  if (!isObject(details)) return {};
  const { code, data } = details;
  const isCode = typeof code === "number" || typeof code === "string";
  return { code: isCode ? String(code) : undefined, type: isObject(data) ? text(data.type) : undefined };
}

const fieldErrorsIn = (data: JsonObject) =>
  objects(data.errors).map((error) => fieldError(error.field, error.message));

const fieldError = (field: unknown, message: unknown): FieldError => ({
  field: text(field) ?? "",
  message: text(message) ?? "Invalid value.",
});

/** The error's reason in google.rpc.ErrorInfo, or its type in 0.3. */
export function reasonOf(error: RpcError): string | undefined {
  const info = objects(error.data).find((detail) => String(detail["@type"]).endsWith("ErrorInfo"));
  return text(info?.reason) ?? (isObject(error.data) ? text(error.data.type) : undefined);
}

/** The seconds to wait according to `Retry-After` (RFC 9110 §10.2.3): a number of seconds, or a date. */
export function secondsOf(header: string | null, now = Date.now()): number {
  const seconds = /^\d+$/.test(header ?? "") ? Number(header) : (Date.parse(header ?? "") - now) / 1000;
  return seconds > 0 ? Math.ceil(seconds) : 0;
}

export function describe(error: unknown): string {
  if (error instanceof RpcError) return error.message;
  if (error instanceof HttpError) return `HTTP ${error.status}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}
