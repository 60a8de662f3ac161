/** Functions for the types that both versions share. Each dialect provides a `Reader` for parts. */

import { readState } from "./states";
import type { Artifact, JsonObject, Message, Part, PushConfig, StreamEvent, Task, TaskStatus } from "./types";
import { object, objects, text, withoutUndefined } from "./values";

type ReadPart = (source: Record<string, unknown>) => Part;

export interface Reader {
  part: ReadPart;
}

export function readMessage(source: Record<string, unknown>, reader: Reader): Message {
  return {
    messageId: text(source.messageId) ?? "",
    role: /agent$/i.test(String(source.role)) ? "agent" : "user",
    parts: objects(source.parts).map(reader.part),
    contextId: text(source.contextId),
    taskId: text(source.taskId),
    metadata: object(source.metadata),
  };
}

export function readArtifact(source: Record<string, unknown>, reader: Reader): Artifact {
  return {
    artifactId: text(source.artifactId) ?? "",
    name: text(source.name),
    description: text(source.description),
    parts: objects(source.parts).map(reader.part),
    metadata: object(source.metadata),
  };
}

export function readStatus(source: unknown, reader: Reader): TaskStatus {
  const status = object(source) ?? {};
  const message = object(status.message);
  return {
    state: readState(status.state),
    message: message && readMessage(message, reader),
    timestamp: text(status.timestamp),
  };
}

export function statusEvent(source: JsonObject, reader: Reader): StreamEvent {
  const status = readStatus(source.status, reader);
  return { kind: "status", ...idsOf(source), status, metadata: object(source.metadata) };
}

export function artifactEvent(source: JsonObject, reader: Reader): StreamEvent {
  return {
    kind: "artifact",
    ...idsOf(source),
    artifact: readArtifact(object(source.artifact) ?? {}, reader),
    append: source.append === true,
    lastChunk: source.lastChunk === true,
    metadata: object(source.metadata),
  };
}

const idsOf = (source: JsonObject) => ({
  taskId: text(source.taskId) ?? "",
  contextId: text(source.contextId) ?? "",
});

/** Read a push config; *record* has the id of the task and the status of the deliveries. */
export const readPush = (config: JsonObject, record: JsonObject): PushConfig => ({
  id: text(config.id),
  taskId: text(record.taskId),
  url: text(config.url) ?? "",
  token: text(config.token),
  status: text(record.status),
  reason: text(record.reason) ?? text(record.error),
});

export const writePush = (config: PushConfig) =>
  withoutUndefined({ id: config.id || undefined, url: config.url, token: config.token || undefined });

export function readTask(source: Record<string, unknown>, reader: Reader): Task {
  return {
    id: text(source.id) ?? "",
    contextId: text(source.contextId) ?? "",
    status: readStatus(source.status, reader),
    artifacts: objects(source.artifacts).map((artifact) => readArtifact(artifact, reader)),
    history: objects(source.history).map((message) => readMessage(message, reader)),
    metadata: object(source.metadata),
  };
}
