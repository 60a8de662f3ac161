import type { Dialect, RpcRequest } from "./dialect";
import { readArtifact, readMessage, readStatus, readTask, type Reader } from "./read";
import type { JsonObject, ListQuery, Message, Operation, Part, PushConfig, StreamEvent } from "./types";
import { given, isObject, object, objects, text } from "./values";

const reader: Reader = { part: readPart };

const METHODS: Record<Operation["name"], string> = {
  send: "message/send",
  stream: "message/stream",
  get: "tasks/get",
  list: "tasks/list",
  cancel: "tasks/cancel",
  subscribe: "tasks/resubscribe",
  setPush: "tasks/pushNotificationConfig/set",
  listPush: "tasks/pushNotificationConfig/list",
  deletePush: "tasks/pushNotificationConfig/delete",
  extendedCard: "agent/getAuthenticatedExtendedCard",
};

/** A2A 0.3, JSON-RPC. */
export const v03: Dialect = {
  version: "0.3",
  headers: {},
  request: (operation): RpcRequest => ({
    method: METHODS[operation.name],
    params: params(operation),
  }),
  task: (result) => readTask(object(result) ?? {}, reader),
  event,
  page(result) {
    const source = object(result) ?? {};
    return {
      tasks: objects(source.tasks).map((each) => readTask(each, reader)),
      next: text(source.nextCursor) ?? "",
    };
  },
  pushConfigs: (result) => objects(result).map(readPush),
};

function params(operation: Operation): JsonObject {
  switch (operation.name) {
    case "send":
    case "stream":
      return given({
        message: message(operation.message),
        metadata: operation.metadata,
        configuration: configuration(operation),
      });
    case "list":
      return list(operation.query);
    case "setPush":
      return { taskId: operation.taskId, pushNotificationConfig: push(operation.config) };
    case "listPush":
      return { id: operation.taskId };
    case "deletePush":
      return { id: operation.taskId, pushNotificationConfigId: operation.id };
    case "extendedCard":
      return {};
    default:
      return { id: operation.id };
  }
}

const message = (source: Message) =>
  given({ kind: "message", ...source, parts: source.parts.map(part) });

/** Data that is no object stands in one, as with a2a-sdk. */
function part(source: Part): JsonObject {
  const { text: said, data, raw, url, filename, mediaType, metadata } = source;
  if (said !== undefined) return given({ kind: "text", text: said, metadata });
  if (data === undefined) {
    const file = given({ bytes: raw, uri: url, name: filename, mimeType: mediaType });
    return given({ kind: "file", file, metadata });
  }
  if (isObject(data)) return given({ kind: "data", data, metadata });
  return { kind: "data", data: { value: data }, metadata: { ...metadata, data_part_compat: true } };
}

function configuration(operation: Extract<Operation, { name: "send" | "stream" }>) {
  const options = operation.options;
  return given({
    blocking: operation.name === "send" ? !options?.returnImmediately : undefined,
    historyLength: options?.historyLength,
    pushNotificationConfig: options?.push && push(options.push),
  });
}

const push = (config: PushConfig) =>
  given({ id: config.id || undefined, url: config.url, token: config.token || undefined });

const list = (query: ListQuery) =>
  given({
    contextId: query.contextId || undefined,
    status: query.state,
    statusTimestampAfter: query.after || undefined,
    limit: query.pageSize,
    cursor: query.pageToken || undefined,
  });

function readPart(source: Record<string, unknown>): Part {
  const file = object(source.file);
  const metadata = object(source.metadata);
  const data = source.data as Part["data"];
  const bare = metadata?.data_part_compat === true && isObject(data) ? data.value : data;
  return {
    ...("data" in source ? { data: bare } : {}),
    text: text(source.text),
    raw: text(file?.bytes),
    url: text(file?.uri),
    filename: text(file?.name),
    mediaType: text(file?.mimeType),
    metadata,
  };
}

function readPush(source: JsonObject): PushConfig {
  const config = object(source.pushNotificationConfig) ?? {};
  return {
    id: text(config.id),
    taskId: text(source.taskId),
    url: text(config.url) ?? "",
    token: text(config.token),
    status: text(source.status),
    reason: text(source.reason) ?? text(source.error),
  };
}

function event(result: unknown): StreamEvent {
  const source = object(result) ?? {};
  const ids = { taskId: text(source.taskId) ?? "", contextId: text(source.contextId) ?? "" };
  const metadata = object(source.metadata);
  switch (source.kind) {
    case "status-update":
      return { kind: "status", ...ids, status: readStatus(source.status, reader), metadata };
    case "artifact-update":
      return {
        kind: "artifact",
        ...ids,
        artifact: readArtifact(object(source.artifact) ?? {}, reader),
        append: source.append === true,
        lastChunk: source.lastChunk === true,
        metadata,
      };
    case "message":
      return { kind: "message", message: readMessage(source, reader) };
    default:
      return { kind: "task", task: readTask(source, reader) };
  }
}
