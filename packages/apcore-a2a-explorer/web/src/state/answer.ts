import { RpcError } from "../protocol/errors";
import { isPaused, isTerminal } from "../protocol/states";
import type { Part, Task } from "../protocol/types";
import { card } from "./agent";
import type { Run, TimedEvent } from "./run";
import { start } from "./runs";
import { getTask, inbox, loadInbox } from "./tasks";

/** UnsupportedOperationError: the agent may return it if the task no longer waits for an answer. */
const NOT_WAITING = -32004;

interface Answer {
  run: Run;
  /** Whether the agent has accepted the answer; false if `run.error` or `run.isLate` is set. */
  accepted: Promise<boolean>;
}

/**
 * Answer a paused task; the new run continues the *earlierEvents*. *onReply* is called with the run
 * after its first new event, if it ends without an error, or if the answer came too late (`isLate`).
 * After another error, `run.error` is set and *onReply* is not called.
 */
export function answer(
  task: Task,
  part: Part,
  earlierEvents: TimedEvent[],
  onReply: (next: Run) => void,
): Answer {
  const mode = card.value?.capabilities.streaming ? "stream" : "send";
  const run = start(mode, [part], { taskId: task.id, contextId: task.contextId });
  const messageId = "message" in run.operation ? run.operation.message.messageId : "";
  run.events = [...earlierEvents];
  run.task = task;
  const accepted = new Promise<boolean>((resolve) => {
    const stop = run.changed.subscribe(() => {
      const isOver = run.connection === "ended" || run.connection === "given up";
      if (run.events.length === earlierEvents.length && !isOver) return;
      queueMicrotask(() => stop());
      const hasFailed = isOver && run.error !== null;
      const handled = hasFailed ? afterFailure(run, task.id, onReply) : afterReply(run, messageId, onReply);
      resolve(handled.then(() => !hasFailed && !run.isLate));
    });
  });
  return { run, accepted };
}

async function afterReply(run: Run, messageId: string, onReply: (next: Run) => void) {
  const { id } = run.task!;
  inbox.value = inbox.value?.filter((pausedTask) => pausedTask.id !== id) ?? null;
  onReply(run);
  if (isTerminal(run.task!.status.state)) void loadInbox();
  // an agent may reply to a late answer with the task, not an error; the task's history lacks the answer then
  const { history } = await getTask(id).catch(() => ({ history: [] as Task["history"] }));
  if (!history.length || history.some((message) => message.messageId === messageId)) return;
  run.isLate = true;
  run.touch();
}

async function afterFailure(run: Run, id: string, onReply: (next: Run) => void) {
  if (!(run.error instanceof RpcError) || run.error.code !== NOT_WAITING) return;
  const task = await getTask(id).catch(() => null);
  if (!task || isPaused(task.status.state)) return;
  run.task = task;
  run.error = null;
  run.isLate = true;
  run.touch();
  inbox.value = inbox.value?.filter((pausedTask) => pausedTask.id !== id) ?? null;
  onReply(run);
}
