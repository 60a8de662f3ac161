import type { JsonObject, Operation, PushConfig, StreamEvent, Task, TaskPage, Version } from "./types";

export interface RpcRequest {
  method: string;
  params: JsonObject;
}

/** The wire format of a version of the protocol. */
export interface Dialect {
  version: Version;
  /** The header fields that the version requires in each request. */
  headers: Record<string, string>;
  request(operation: Operation): RpcRequest;
  task(result: unknown): Task;
  event(result: unknown): StreamEvent;
  page(result: unknown): TaskPage;
  pushConfigs(result: unknown): PushConfig[];
}
