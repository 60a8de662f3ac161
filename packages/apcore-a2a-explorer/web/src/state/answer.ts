import { RpcError } from "../protocol/errors";
import { isPaused, isTerminal } from "../protocol/states";
import type { Part, Task } from "../protocol/types";
import { card } from "./agent";
import type { Run, TimedEvent } from "./run";
import { start } from "./runs";
import { getTask, inbox, loadInbox } from "./tasks";

/** The code of a refusal: the task does not wait for an answer any more. */
const WAITS_NO_MORE = -32004;

/**
 * Answer a paused task. As soon as there is something to see, *replied* gets the run, which goes
 * on behind the events that are *known*; a run that was refused has its error.
 */
export function answer(
  task: Task,
  part: Part,
  known: TimedEvent[],
  replied: (next: Run) => void,
): Run {
  const mode = card.value?.capabilities.streaming ? "stream" : "send";
  const run = start(mode, [part], { taskId: task.id, contextId: task.contextId });
  const messageId = "message" in run.operation ? run.operation.message.messageId : "";
  run.events = [...known];
  run.task = task;
  const stop = run.changed.subscribe(() => {
    const refused = run.error !== null && run.connection === "ended";
    if (run.events.length === known.length && !refused) return;
    queueMicrotask(() => stop());
    void (refused ? afterRefusal(run, task.id, replied) : afterReply(run, messageId, replied));
  });
  return run;
}

async function afterReply(run: Run, messageId: string, replied: (next: Run) => void) {
  const { id } = run.task!;
  inbox.value = inbox.value?.filter((each) => each.id !== id) ?? null;
  replied(run);
  if (isTerminal(run.task!.status.state)) void loadInbox();
  // an agent may take a late answer for a question how the task stands: only the history tells
  const { history } = await getTask(id).catch(() => ({ history: [] as Task["history"] }));
  if (!history.length || history.some((each) => each.messageId === messageId)) return;
  run.late = true;
  run.touch();
}

async function afterRefusal(run: Run, id: string, replied: (next: Run) => void) {
  if (!(run.error instanceof RpcError) || run.error.code !== WAITS_NO_MORE) return;
  const found = await getTask(id).catch(() => null);
  if (!found || isPaused(found.status.state)) return;
  run.task = found;
    run.error = null;
  run.late = true;
  run.touch();
  inbox.value = inbox.value?.filter((each) => each.id !== id) ?? null;
  replied(run);
}
