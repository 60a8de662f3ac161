import { isTerminal, readState } from "./states";
import type { Task } from "./types";
import { object, objects, text } from "./values";

/** An act, such as an approval, of a principal who does not own the task. */
export interface Decision {
  principal: string;
  act: string;
  timestamp?: string;
}

/** Facts that only agents of this project add to the metadata of a task. */
export interface TaskFacts {
  principal?: string;
  traceId?: string;
  decisions: Decision[];
  /** The creation time, in milliseconds since 1970. */
  createdAt?: number;
  /** The number of attempts to run the task: 1, plus 1 for each takeover by a replica. */
  attempts?: number;
}

export const skillOf = (task: Task) =>
  typeof task.metadata?.skillId === "string" ? task.metadata.skillId : "";

export function taskFacts(task: Task): TaskFacts {
  const reported = object(task.metadata?.apcore) ?? {};
  const earlierStates = objects(reported.stateHistory);
  const states = [...earlierStates.map((entry) => readState(entry.state)), task.status.state];
  const restarts = states.filter((state, index) => state === "working" && states[index - 1] === "working");
  return {
    principal: text(reported.principal) ?? text(earlierStates[0]?.principal),
    traceId: text(reported.traceId),
    decisions: objects(reported.decisions).map((decision) => ({
      principal: text(decision.principal) ?? "",
      act: text(decision.act) ?? "",
      timestamp: text(decision.timestamp),
    })),
    createdAt: Date.parse(text(reported.createdAt) ?? text(earlierStates[0]?.timestamp) ?? "") || undefined,
    attempts: earlierStates.length ? restarts.length + 1 : undefined,
  };
}

/**
 * The duration of a task in milliseconds, until *now* if the task has not ended.
 *
 * If the creation time is unknown: the time since the last change, or undefined if the task has ended.
 */
export function durationOf(task: Task, now: number): number | undefined {
  const changedAt = Date.parse(task.status.timestamp ?? "") || undefined;
  const start = taskFacts(task).createdAt;
  if (isTerminal(task.status.state)) return start && changedAt && changedAt - start;
  const since = start ?? changedAt;
  return since && Math.max(0, now - since);
}
