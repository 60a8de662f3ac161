import type { Dialect, RpcRequest } from "./dialect";
import { artifactEvent, readMessage, readPush, readTask, statusEvent, writePush, type Reader } from "./read";
import type { JsonObject, ListQuery, Message, Operation, Part, StreamEvent } from "./types";
import { isObject, object, objects, text, withoutUndefined } from "./values";

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
    params: paramsOf(operation),
  }),
  task: (result) => readTask(object(result) ?? {}, reader),
  event,
  page(result) {
    const source = object(result) ?? {};
    return {
      tasks: objects(source.tasks).map((task) => readTask(task, reader)),
      next: text(source.nextCursor) ?? "",
    };
  },
  pushConfigs: (result) =>
    objects(result).map((record) => readPush(object(record.pushNotificationConfig) ?? {}, record)),
};

function paramsOf(operation: Operation): JsonObject {
  switch (operation.name) {
    case "send":
    case "stream":
      return withoutUndefined({
        message: writeMessage(operation.message),
        metadata: operation.metadata,
        configuration: configurationOf(operation),
      });
    case "list":
      return listParams(operation.query);
    case "setPush":
      return { taskId: operation.taskId, pushNotificationConfig: writePush(operation.config) };
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

const writeMessage = (source: Message) =>
  withoutUndefined({ kind: "message", ...source, parts: source.parts.map(writePart) });

/** Write a part. Like a2a-sdk, put data other than objects into an object. */
function writePart(source: Part): JsonObject {
  const { text: content, data, raw, url, filename, mediaType, metadata } = source;
  if (content !== undefined) return withoutUndefined({ kind: "text", text: content, metadata });
  if (data === undefined) {
    const file = withoutUndefined({ bytes: raw, uri: url, name: filename, mimeType: mediaType });
    return withoutUndefined({ kind: "file", file, metadata });
  }
  if (isObject(data)) return withoutUndefined({ kind: "data", data, metadata });
  return { kind: "data", data: { value: data }, metadata: { ...metadata, data_part_compat: true } };
}

function configurationOf(operation: Extract<Operation, { name: "send" | "stream" }>) {
  const options = operation.options;
  return withoutUndefined({
    blocking: operation.name === "send" ? !options?.returnImmediately : undefined,
    historyLength: options?.historyLength,
    pushNotificationConfig: options?.push && writePush(options.push),
  });
}

const listParams = (query: ListQuery) =>
  withoutUndefined({
    contextId: query.contextId || undefined,
    status: query.state,
    statusTimestampAfter: query.changedAfter || undefined,
    // histories may be large, so they are requested only together with artifacts
    historyLength: query.includeArtifacts ? undefined : 0,
    limit: query.pageSize,
    cursor: query.pageToken || undefined,
  });

function readPart(source: Record<string, unknown>): Part {
  const file = object(source.file);
  const metadata = object(source.metadata);
  const data = source.data as Part["data"];
  const unwrapped = metadata?.data_part_compat === true && isObject(data) ? data.value : data;
  return {
    ...("data" in source ? { data: unwrapped } : {}),
    text: text(source.text),
    raw: text(file?.bytes),
    url: text(file?.uri),
    filename: text(file?.name),
    mediaType: text(file?.mimeType),
    metadata,
  };
}

function event(result: unknown): StreamEvent {
  const source = object(result) ?? {};
  switch (source.kind) {
    case "status-update":
      return statusEvent(source, reader);
    case "artifact-update":
      return artifactEvent(source, reader);
    case "message":
      return { kind: "message", message: readMessage(source, reader) };
    default:
      return { kind: "task", task: readTask(source, reader) };
  }
}
