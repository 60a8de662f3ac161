import { effect, signal } from "@preact/signals";
import { HttpError } from "../protocol/errors";
import { isTerminal } from "../protocol/states";
import type {
  JsonObject,
  Message,
  Operation,
  Part,
  SendMode,
  SendOptions,
  Task,
  TaskState,
} from "../protocol/types";
import { withoutUndefined } from "../protocol/values";
import { credentials } from "./credentials";
import { randomHex } from "./random";
import { Run } from "./run";
import { keepInSession } from "./session";

const MAX_RUNS = 20; // for each skill
const MAX_RUNS_WITH_EVENTS = 5; // for each skill

/**
 * The run shown for each skill (key: the skill id) and for each task (key: `task <id>`).
 * A run continues while another view is shown.
 */
export const runs = signal(new Map<string, Run>());

/** The latest runs of each skill, newest first. */
export const histories = signal(new Map<string, Run[]>());

export interface SendParams {
  skillId?: string;
  contextId?: string;
  taskId?: string;
  options?: SendOptions;
}

export function messageOf(parts: Part[], { contextId, taskId }: SendParams): Message {
  const ids = withoutUndefined({ contextId: contextId || undefined, taskId: taskId || undefined });
  // pages without https have no randomUUID
  return { messageId: crypto.randomUUID?.() ?? randomHex(16), role: "user", parts, ...ids };
}

export function operationOf(mode: SendMode, parts: Part[], params: SendParams) {
  const metadata: JsonObject | undefined = params.skillId
    ? { skillId: params.skillId }
    : undefined;
  const options = mode === "later" ? { ...params.options, returnImmediately: true } : params.options;
  const name = mode === "stream" ? ("stream" as const) : ("send" as const);
  return { name, message: messageOf(parts, params), metadata, options };
}

export function start(mode: SendMode, parts: Part[], params: SendParams): Run {
  const run = new Run(params.skillId, operationOf(mode, parts, params));
  if (mode === "stream") void run.watch();
  else void run.send();
  return run;
}

export function showRun(key: string, run: Run): void {
  runs.value = new Map(runs.value).set(key, run);
}

/** Show *run*, and put it first in the skill's history, where it replaces an earlier run of the same task. */
export function addRun(skillId: string, run: Run): void {
  showRun(skillId, run);
  const earlier = histories.value.get(skillId) ?? [];
  const runOfSameTask = earlier.find(({ task }) => task && task.id === run.task?.id);
  if (runOfSameTask) Object.assign(run, { sent: runOfSameTask.sent, startedAt: runOfSameTask.startedAt });
  const history = [run, ...earlier.filter((earlierRun) => earlierRun !== runOfSameTask)].slice(0, MAX_RUNS);
  for (const oldRun of history.slice(MAX_RUNS_WITH_EVENTS)) if (!oldRun.isActive) oldRun.events = [];
  histories.value = new Map(histories.value).set(skillId, history);
}

/** A new run to watch an existing task, from its first event if the agent keeps events. */
export function runFor(task: Task): Run {
  return withReplay(new Run(undefined, { name: "subscribe", id: task.id }));
}

function withReplay(run: Run): Run {
  run.lastEventId = "0";
  run.replays = true;
  return run;
}

// once the user has signed in, send each refused message again
effect(() => {
  if (!credentials.value) return;
  for (const run of runs.peek().values()) {
    const wasRefused = run.error instanceof HttpError && run.error.status === 401;
    if (wasRefused && !run.isActive && !run.task) run.retry();
  }
});

interface StoredRun {
  sent: Operation;
  traceId: string;
  startedAt: number;
  endedAt?: number;
  taskId: string;
  contextId: string;
  state: TaskState;
  timestamp?: string;
  /** Whether the page was still following the task when the run was stored. */
  followed: boolean;
}

const stored = keepInSession<StoredRun[]>("runs", () =>
  [...histories.value].map(([skillId, history]): [string, StoredRun[]] => [
    skillId,
    history.flatMap((run) => storable(run) ?? []),
  ]),
);

function storable(run: Run): StoredRun | undefined {
  const { sent, traceId, startedAt, endedAt, task } = run;
  if (!task || run.isTaskLost) return undefined;
  const { state, timestamp } = task.status;
  const followed = run.isActive || run.connection === "lost";
  return { sent: withoutToken(sent), traceId, startedAt, endedAt, taskId: task.id, contextId: task.contextId, state, timestamp, followed };
}

/** The operation without the token of its webhook, which is a secret. */
function withoutToken(sent: Operation): Operation {
  if ((sent.name !== "send" && sent.name !== "stream") || !sent.options?.push) return sent;
  const { url } = sent.options.push;
  return { ...sent, options: { ...sent.options, push: { url } } };
}

/** Restore the runs from before a reload. If a run was following a task that has not ended, follow the task again. */
export function restoreRuns(): void {
  const restoredRuns = [...stored].map(([skillId, list]): [string, Run[]] => [
    skillId,
    list.map((storedRun) => restoreRun(skillId, storedRun)),
  ]);
  histories.value = new Map(restoredRuns);
  runs.value = new Map(restoredRuns.flatMap(([skillId, [latest]]) => (latest ? [[skillId, latest]] : [])));
}

function restoreRun(skillId: string, storedRun: StoredRun): Run {
  const { sent, traceId, startedAt, endedAt, taskId, contextId, state, timestamp } = storedRun;
  const run = withReplay(new Run(skillId, sent));
  const status = { state, timestamp };
  Object.assign(run, { traceId, startedAt, endedAt, connection: "ended", isPartial: true });
  run.task = { id: taskId, contextId, status, artifacts: [], history: [] };
  if (storedRun.followed && !isTerminal(state)) void run.follow();
  return run;
}

// if the page is left before it knows the task's id, it can't follow the task later, and the agent may cancel the task
addEventListener("beforeunload", (event) => {
  const isSending = [...runs.value.values()].some((run) => run.isActive && !run.task);
  if (isSending) event.preventDefault();
});
