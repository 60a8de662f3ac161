import type { TaskState } from "./types";

export const STATES: TaskState[] = [
  "submitted",
  "working",
  "input-required",
  "auth-required",
  "completed",
  "failed",
  "canceled",
  "rejected",
];

const TERMINAL = new Set<TaskState>(["completed", "failed", "canceled", "rejected"]);
const PAUSED = new Set<TaskState>(["input-required", "auth-required"]);

export const isTerminal = (state: TaskState) => TERMINAL.has(state);
export const isPaused = (state: TaskState) => PAUSED.has(state);
/** Whether the task has ended, or waits for the user. */
export const isSettled = (state: TaskState) => isTerminal(state) || isPaused(state);

/** Read a state in either spelling: `TASK_STATE_INPUT_REQUIRED` or `input-required`. */
export function readState(name: unknown): TaskState {
  const state = String(name ?? "")
    .replace(/^TASK_STATE_/, "")
    .replaceAll("_", "-")
    .toLowerCase() as TaskState;
  return STATES.includes(state) ? state : "unknown";
}

export const toV1State = (state: TaskState) => `TASK_STATE_${state.replaceAll("-", "_").toUpperCase()}`;
