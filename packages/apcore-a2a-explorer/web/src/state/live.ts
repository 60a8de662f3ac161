/** Changes of tasks, polled while the page is visible or desktop notifications are on. */

import { signal } from "@preact/signals";
import { ConnectionError, HttpError, isBusy } from "../protocol/errors";
import { isPaused } from "../protocol/states";
import type { Task } from "../protocol/types";
import { card } from "./agent";
import { credentials } from "./credentials";
import { notifying } from "./notify";
import { version } from "./settings";
import { inbox, listTasks, loadInbox } from "./tasks";

const POLL_INTERVAL = 4_000; // milliseconds
const LONGEST_INTERVAL = 30_000; // milliseconds, while the agent can't be reached or the page is hidden
const OVERLAP = 1_000; // milliseconds; each poll begins before the latest known change: other tasks may have changed at that time
const PAGE_SIZE = 50;

/** The tasks that changed last, and how many times polling has recovered from failures. */
export const live = signal<{ changed: Task[]; recoveries: number }>({ changed: [], recoveries: 0 });

/** The time of the latest known change, in milliseconds by the agent's clock. */
let latest: number | undefined;
let timestamps = new Map<string, string | undefined>();
let interval = POLL_INTERVAL;
let timer: ReturnType<typeof setTimeout> | undefined;
/** Number of the current loop of polls; earlier loops stop. */
let currentRound = 0;

/**
 * Start to poll; restart when the credentials, the version, the choice of notifications or the
 * visibility of the page change.
 */
export function startPolling(): void {
  for (const source of [credentials, version]) {
    source.subscribe(() => {
      latest = undefined;
      timestamps = new Map();
      restart();
    });
  }
  notifying.subscribe(restart);
  document.addEventListener("visibilitychange", restart);
}

function restart(): void {
  currentRound++;
  interval = POLL_INTERVAL;
  clearTimeout(timer);
  // polling without credentials would open the sign-in dialog
  const mayPoll = card.value && (credentials.value || !card.value.schemes.length);
  if (mayPoll && (!document.hidden || notifying.value)) void poll(currentRound);
}

async function poll(round: number): Promise<void> {
  try {
    const { changed, hasMore } = await changes();
    if (round !== currentRound) return;
    const hasRecovered = interval > POLL_INTERVAL;
    interval = POLL_INTERVAL;
    if (changed.length || hasMore || hasRecovered) publish(changed, hasMore, hasRecovered);
  } catch (error) {
    if (round !== currentRound || !isTemporary(error)) return;
    interval = Math.min(2 * interval, LONGEST_INTERVAL);
  }
  timer = setTimeout(() => void poll(round), document.hidden ? LONGEST_INTERVAL : interval);
}

/** The tasks that have changed since the last call, none at the first call; and whether more have changed. */
async function changes(): Promise<{ changed: Task[]; hasMore: boolean }> {
  const isFirst = latest === undefined;
  const changedAfter = isFirst ? undefined : new Date(latest! - OVERLAP).toISOString();
  const { tasks, next } = await listTasks({ changedAfter, pageSize: isFirst ? 1 : PAGE_SIZE }, { isUnlogged: true });
  const changedTasks = tasks.filter((task) => timestamps.get(task.id) !== task.status.timestamp);
  timestamps = new Map(tasks.map((task) => [task.id, task.status.timestamp]));
  const times = tasks.map((task) => Date.parse(task.status.timestamp ?? "")).filter(Boolean);
  latest = Math.max(latest ?? 0, ...times);
  return isFirst ? { changed: [], hasMore: false } : { changed: changedTasks, hasMore: Boolean(next) };
}

function publish(changed: Task[], hasMore: boolean, hasRecovered: boolean): void {
  live.value = { changed, recoveries: live.value.recoveries + Number(hasRecovered) };
  const waitingIds = new Set(inbox.value?.map((task) => task.id));
  const affectsInbox = (task: Task) => isPaused(task.status.state) || waitingIds.has(task.id);
  // a pause may be among the changes that were not listed
  if (hasRecovered || hasMore || changed.some(affectsInbox)) void loadInbox();
}

/** Whether to poll again after *error*: not if the agent cannot list tasks, or refuses to. */
const isTemporary = (error: unknown) =>
  error instanceof ConnectionError || isBusy(error) || (error instanceof HttpError && error.status >= 500);
