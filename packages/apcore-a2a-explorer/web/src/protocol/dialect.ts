import type { JsonObject, Operation, PushConfig, StreamEvent, Task, TaskPage, Version } from "./types";

export interface RpcRequest {
  method: string;
  params: JsonObject;
}

/** How a version of the protocol looks on the wire. */
export interface Dialect {
  version: Version;
  /** The header fields of each request, beside the content type. */
  headers: Record<string, string>;
  request(operation: Operation): RpcRequest;
  task(result: unknown): Task;
  event(result: unknown): StreamEvent;
  page(result: unknown): TaskPage;
  pushConfigs(result: unknown): PushConfig[];
}
