import { signal } from "@preact/signals";
import type { JsonObject, Message, Part, SendOptions, Task } from "../protocol/types";
import { withoutUndefined } from "../protocol/values";
import { Run } from "./run";

export type SendMode = "stream" | "send" | "later";

/**
 * The latest run of each skill, by its id, and of each task, by `task <id>`. Runs continue while
 * views change.
 */
export const runs = signal(new Map<string, Run>());

export interface SendParams {
  skillId?: string;
  contextId?: string;
  taskId?: string;
  options?: SendOptions;
}

export function messageOf(parts: Part[], { contextId, taskId }: SendParams): Message {
  const ids = withoutUndefined({ contextId: contextId || undefined, taskId: taskId || undefined });
  return { messageId: crypto.randomUUID?.() ?? randomId(), role: "user", parts, ...ids };
}

export function operationOf(mode: SendMode, parts: Part[], sending: SendParams) {
  const metadata: JsonObject | undefined = sending.skillId
    ? { skillId: sending.skillId }
    : undefined;
  const options = mode === "later" ? { ...sending.options, returnImmediately: true } : sending.options;
  const name = mode === "stream" ? ("stream" as const) : ("send" as const);
  return { name, message: messageOf(parts, sending), metadata, options };
}

export function start(mode: SendMode, parts: Part[], sending: SendParams): Run {
  const run = new Run(sending.skillId, operationOf(mode, parts, sending));
  if (mode === "stream") void run.watch();
  else void run.send();
  return run;
}

export function rememberRun(key: string, run: Run): void {
  runs.value = new Map(runs.value).set(key, run);
}

/** A run that watches an existing task, from its first event if the agent keeps events. */
export function watching(task: Task): Run {
  const run = new Run(undefined, { name: "subscribe", id: task.id });
  run.lastEventId = "0";
  run.replays = true;
  return run;
}

/** A random id for pages without https, which have no randomUUID. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
