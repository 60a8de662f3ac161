/** Types of A2A 1.0 §4 that the explorer uses; the JSON of both versions is converted to them. */

/** JSON; integers that are not safe as doubles are BigInts. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

export type TaskState =
  | "submitted"
  | "working"
  | "input-required"
  | "auth-required"
  | "completed"
  | "failed"
  | "canceled"
  | "rejected"
  | "unknown";

export interface Part {
  text?: string;
  data?: Json;
  /** The bytes of a file, in base64. */
  raw?: string;
  url?: string;
  filename?: string;
  mediaType?: string;
  metadata?: JsonObject;
}

export type Role = "user" | "agent";

export interface Message {
  messageId: string;
  role: Role;
  parts: Part[];
  contextId?: string;
  taskId?: string;
  metadata?: JsonObject;
}

export interface Artifact {
  artifactId: string;
  name?: string;
  description?: string;
  parts: Part[];
  metadata?: JsonObject;
}

export interface TaskStatus {
  state: TaskState;
  message?: Message;
  timestamp?: string;
}

export interface Task {
  id: string;
  contextId: string;
  status: TaskStatus;
  artifacts: Artifact[];
  history: Message[];
  metadata?: JsonObject;
}

export type StreamEvent =
  | { kind: "task"; task: Task }
  | { kind: "message"; message: Message }
  | {
      kind: "status";
      taskId: string;
      contextId: string;
      status: TaskStatus;
      metadata?: JsonObject;
    }
  | {
      kind: "artifact";
      taskId: string;
      contextId: string;
      artifact: Artifact;
      append: boolean;
      lastChunk: boolean;
      metadata?: JsonObject;
    };

export interface PushConfig {
  id?: string;
  taskId?: string;
  url: string;
  token?: string;
  status?: string;
  reason?: string;
}

export interface TaskPage {
  tasks: Task[];
  /** The token of the next page; empty on the last page. */
  next: string;
  total?: number;
}

export interface SendOptions {
  returnImmediately?: boolean;
  push?: PushConfig;
  historyLength?: number;
}

export interface ListQuery {
  contextId?: string;
  state?: TaskState;
  /** Only tasks that have changed since this time (ISO 8601). */
  changedAfter?: string;
  pageSize?: number;
  pageToken?: string;
  includeArtifacts?: boolean;
}

/** The operations of the protocol, independent of its version. */
export type Operation =
  | { name: "send" | "stream"; message: Message; metadata?: JsonObject; options?: SendOptions }
  | { name: "get" | "cancel" | "subscribe"; id: string }
  | { name: "list"; query: ListQuery }
  | { name: "setPush"; taskId: string; config: PushConfig }
  | { name: "listPush"; taskId: string }
  | { name: "deletePush"; taskId: string; id: string }
  | { name: "extendedCard" };

export type Version = "1.0" | "0.3";

/** Modes of sending a message: `stream` reads events, `send` waits for the result, `later` runs in the background. */
export type SendMode = "stream" | "send" | "later";
