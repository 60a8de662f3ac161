import type { Dialect, RpcRequest } from "./dialect";
import { artifactEvent, readMessage, readPush, readTask, statusEvent, writePush, type Reader } from "./read";
import { toV1State } from "./states";
import type { JsonObject, ListQuery, Message, Operation, Part, SendOptions, StreamEvent } from "./types";
import { object, objects, text, withoutUndefined } from "./values";

const reader: Reader = {
  part: (source) => ({
    ...("data" in source ? { data: source.data as Part["data"] } : {}),
    text: text(source.text),
    raw: text(source.raw),
    url: text(source.url),
    filename: text(source.filename),
    mediaType: text(source.mediaType),
    metadata: object(source.metadata),
  }),
};

const METHODS: Record<Operation["name"], string> = {
  send: "SendMessage",
  stream: "SendStreamingMessage",
  get: "GetTask",
  list: "ListTasks",
  cancel: "CancelTask",
  subscribe: "SubscribeToTask",
  setPush: "CreateTaskPushNotificationConfig",
  listPush: "ListTaskPushNotificationConfigs",
  deletePush: "DeleteTaskPushNotificationConfig",
  extendedCard: "GetExtendedAgentCard",
};

/** A2A 1.0, JSON-RPC binding (§9). */
export const v1: Dialect = {
  version: "1.0",
  headers: { "A2A-Version": "1.0" },
  request: (operation): RpcRequest => ({
    method: METHODS[operation.name],
    params: paramsOf(operation),
  }),
  task(result) {
    const source = object(result) ?? {};
    return readTask(object(source.task) ?? source, reader);
  },
  event,
  page(result) {
    const source = object(result) ?? {};
    return {
      tasks: objects(source.tasks).map((task) => readTask(task, reader)),
      next: text(source.nextPageToken) ?? "",
      total: typeof source.totalSize === "number" ? source.totalSize : undefined,
    };
  },
  pushConfigs: (result) => objects(object(result)?.configs).map((config) => readPush(config, config)),
};

function paramsOf(operation: Operation): JsonObject {
  switch (operation.name) {
    case "send":
    case "stream":
      return withoutUndefined({
        message: writeMessage(operation.message),
        metadata: operation.metadata,
        configuration: configurationOf(operation.options),
      });
    case "list":
      return listParams(operation.query);
    case "setPush":
      return withoutUndefined({ taskId: operation.taskId, ...writePush(operation.config) });
    case "listPush":
      return { taskId: operation.taskId };
    case "deletePush":
      return { taskId: operation.taskId, id: operation.id };
    case "extendedCard":
      return {};
    default:
      return { id: operation.id };
  }
}

const writeMessage = (source: Message) =>
  withoutUndefined({
    ...source,
    role: source.role === "user" ? "ROLE_USER" : "ROLE_AGENT",
    parts: source.parts.map((part) => withoutUndefined({ ...part })),
  });

function configurationOf(options: SendOptions | undefined) {
  const result = withoutUndefined({
    returnImmediately: options?.returnImmediately || undefined,
    historyLength: options?.historyLength,
    taskPushNotificationConfig: options?.push && writePush(options.push),
  });
  return Object.keys(result).length ? result : undefined;
}

const listParams = (query: ListQuery) =>
  withoutUndefined({
    contextId: query.contextId || undefined,
    status: query.state && toV1State(query.state),
    statusTimestampAfter: query.changedAfter || undefined,
    // histories may be large, so they are requested only together with artifacts
    historyLength: query.includeArtifacts ? undefined : 0,
    pageSize: query.pageSize,
    pageToken: query.pageToken || undefined,
    includeArtifacts: query.includeArtifacts,
  });

function event(result: unknown): StreamEvent {
  const source = object(result) ?? {};
  const status = object(source.statusUpdate);
  const artifact = object(source.artifactUpdate);
  const message = object(source.message);
  if (status) return statusEvent(status, reader);
  if (artifact) return artifactEvent(artifact, reader);
  if (message) return { kind: "message", message: readMessage(message, reader) };
  return { kind: "task", task: readTask(object(source.task) ?? source, reader) };
}
