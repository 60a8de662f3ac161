/**
 * The HTTP+JSON binding of A2A 1.0 (§11) and 0.3. In 0.3, the SDKs send the JSON of the protocol
 * buffers, which differs from the JSON of JSON-RPC.
 */

import type { Binding, WireRequest } from "./binding";
import { RpcError } from "./errors";
import { toJson } from "./json";
import type { JsonObject, Operation, Version } from "./types";
import { isObject, object, objects, text, withoutUndefined } from "./values";

/** JSON-RPC codes, by the reason of an error (§11.6) or by the gRPC status. */
const CODES: Record<string, number> = {
  TASK_NOT_FOUND: -32001,
  TASK_NOT_CANCELABLE: -32002,
  PUSH_NOTIFICATION_NOT_SUPPORTED: -32003,
  UNSUPPORTED_OPERATION: -32004,
  CONTENT_TYPE_NOT_SUPPORTED: -32005,
  INVALID_AGENT_RESPONSE: -32006,
  EXTENDED_AGENT_CARD_NOT_CONFIGURED: -32007,
  EXTENSION_SUPPORT_REQUIRED: -32008,
  VERSION_NOT_SUPPORTED: -32009,
  INVALID_ARGUMENT: -32602,
  UNIMPLEMENTED: -32601,
  RESOURCE_EXHAUSTED: -32029,
};
/** JSON-RPC codes by HTTP status, for errors whose body does not show the code. */
const CODES_OF_STATUS: Record<number, number> = { 400: -32602, 404: -32001, 405: -32601, 501: -32004 };
const INTERNAL = -32603;

/** The HTTP+JSON binding of a version. Only interfaces of A2A 1.0 have a *tenant*. */
export function httpJson(version: Version, tenant = ""): Binding {
  const isV03 = version === "0.3";
  const prefix = isV03 ? "/v1" : tenant && `/${encodeURIComponent(tenant)}`;
  return {
    request(dialect, operation) {
      const { verb, path, hasBody } = targetOf(operation, isV03);
      const { params } = dialect.request(operation);
      if (hasBody) {
        const { taskId: _, ...content } = params; // the path contains the id
        return { verb, path: prefix + path, body: toJson(isV03 ? bodyOfV03(operation, params) : content) };
      }
      const query = operation.name === "list" ? `?${queryOf(params)}` : "";
      return { verb, path: prefix + path + query, body: "" };
    },
    result: (operation, source) => (isV03 ? resultOfV03(operation, source) : source),
    error(source, status, retryAfter) {
      const error = object(object(source)?.error) ?? (isV03 ? object(source) : undefined);
      if (!error || text(error.message) === undefined) return undefined;
      return new RpcError(codeOf(error, status), text(error.message)!, error.details ?? error.data, retryAfter);
    },
  };
}

function targetOf(operation: Operation, isV03: boolean): Omit<WireRequest, "body"> & { hasBody: boolean } {
  const taskPath = (id: string) => `/tasks/${encodeURIComponent(id)}`;
  const configsPath = (taskId: string) => `${taskPath(taskId)}/pushNotificationConfigs`;
  const get = (path: string) => ({ verb: "GET" as const, path, hasBody: false });
  const post = (path: string, hasBody = false) => ({ verb: "POST" as const, path, hasBody });
  switch (operation.name) {
    case "send":
      return post("/message:send", true);
    case "stream":
      return post("/message:stream", true);
    case "get":
      return get(taskPath(operation.id));
    case "list":
      return get("/tasks");
    case "cancel":
      return post(`${taskPath(operation.id)}:cancel`);
    case "subscribe":
      return post(`${taskPath(operation.id)}:subscribe`);
    case "setPush":
      return post(configsPath(operation.taskId), true);
    case "listPush":
      return get(configsPath(operation.taskId));
    case "deletePush":
      return { verb: "DELETE", path: `${configsPath(operation.taskId)}/${encodeURIComponent(operation.id)}`, hasBody: false };
    case "extendedCard":
      return get(isV03 ? "/card" : "/extendedAgentCard");
  }
}

const queryOf = (params: JsonObject) =>
  new URLSearchParams(Object.entries(params).map(([name, value]): [string, string] => [name, String(value)]));

function codeOf(error: JsonObject, status: number): number {
  const info = objects(error.details).find((detail) => String(detail["@type"]).endsWith("ErrorInfo"));
  const namedCode = CODES[text(info?.reason) ?? ""] ?? CODES[text(error.status) ?? ""];
  // in 1.0, `code` repeats the HTTP status, which is positive
  const bodyCode = typeof error.code === "number" && error.code < 0 ? error.code : undefined;
  return namedCode ?? bodyCode ?? CODES_OF_STATUS[status] ?? INTERNAL;
}

/** The body of a request of 0.3, from the params of JSON-RPC. */
function bodyOfV03(operation: Operation, params: JsonObject): JsonObject {
  if (operation.name === "setPush") {
    const parent = `tasks/${operation.taskId}`;
    const configId = operation.config.id || "default";
    const name = `${parent}/pushNotificationConfigs/${configId}`;
    return { parent, configId, config: { name, pushNotificationConfig: params.pushNotificationConfig! } };
  }
  const { kind: _, parts, ...message } = object(params.message) ?? {};
  const { pushNotificationConfig, ...configuration } = object(params.configuration) ?? {};
  return withoutUndefined({
    ...params,
    message: {
      ...message,
      role: message.role === "agent" ? "ROLE_AGENT" : "ROLE_USER",
      content: objects(parts).map(partOfV03),
    },
    configuration: withoutUndefined({ ...configuration, pushNotification: pushNotificationConfig }),
  });
}

function partOfV03({ kind: _, ...part }: JsonObject): JsonObject {
  const file = object(part.file);
  if ("data" in part) return { ...part, data: { data: part.data! } };
  if (!file) return part;
  const { uri, bytes, ...more } = file;
  return { ...part, file: withoutUndefined({ ...more, fileWithUri: uri, fileWithBytes: bytes }) };
}

/** Convert a response or an event to the result of JSON-RPC 0.3. */
function resultOfV03(operation: Operation, source: unknown): unknown {
  const response = object(source) ?? {};
  if (operation.name === "extendedCard") return response;
  if (operation.name === "list") return { ...response, tasks: objects(response.tasks).map(task) };
  if (operation.name === "listPush") {
    return objects(response.configs).map((config) => ({ taskId: operation.taskId, ...config }));
  }
  const { statusUpdate, artifactUpdate } = response;
  const message = object(response.msg) ?? object(response.message);
  if (isObject(statusUpdate)) {
    return { ...statusUpdate, kind: "status-update", status: status(statusUpdate.status) };
  }
  if (isObject(artifactUpdate)) {
    const artifact = withParts(object(artifactUpdate.artifact) ?? {});
    return { ...artifactUpdate, kind: "artifact-update", artifact };
  }
  return message ? { ...withParts(message), kind: "message" } : task(object(response.task) ?? response);
}

const task = (source: JsonObject): JsonObject => ({
  ...source,
  kind: "task",
  status: status(source.status),
  artifacts: objects(source.artifacts).map(withParts),
  history: objects(source.history).map(withParts),
});

function status(source: unknown): JsonObject {
  const { message, update, ...rest } = object(source) ?? {};
  const statusMessage = object(message) ?? object(update);
  const state = rest.state === "TASK_STATE_CANCELLED" ? "canceled" : rest.state;
  return withoutUndefined({ ...rest, state, message: statusMessage && withParts(statusMessage) });
}

/** A message or an artifact, with parts in the format of JSON-RPC. */
const withParts = ({ content, parts, ...source }: JsonObject): JsonObject => ({
  ...source,
  parts: objects(content ?? parts).map((part) => {
    const file = object(part.file);
    const data = object(part.data);
    if (file) return { ...part, file: withoutUndefined({ uri: file.fileWithUri, bytes: file.fileWithBytes, ...file }) };
    return data && isObject(data.data) ? { ...part, data: data.data } : part;
  }),
});
