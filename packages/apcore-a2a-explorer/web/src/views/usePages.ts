import { useEffect, useRef, useState } from "preact/hooks";
import type { ListQuery, Task, TaskPage } from "../protocol/types";
import { credentials } from "../state/credentials";
import { live } from "../state/live";
import { version } from "../state/settings";
import { getTask, listTasks } from "../state/tasks";

/** Load tasks page by page. Start again when *query*, the version or the credentials change. */
export function usePages(
  query: ListQuery,
  read: (query: ListQuery) => Promise<TaskPage> = listTasks,
) {
  const [tasks, setTasks] = useState<Task[] | null>(null);
  const [page, setPage] = useState<Omit<TaskPage, "tasks">>({ next: "" });
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const latestLoad = useRef(0);
  const load = async (pageToken = "") => {
    const current = ++latestLoad.current;
    setBusy(true);
    try {
      const { tasks: newTasks, ...rest } = await read({ ...query, pageToken });
      if (current !== latestLoad.current) return;
      setTasks((shown) => appendPage(pageToken ? (shown ?? []) : [], newTasks));
      setPage(rest);
      setError(null);
    } catch (failure) {
      if (current !== latestLoad.current) return;
      setError(failure);
    }
    setBusy(false);
  };
  const queryKey = JSON.stringify(query);
  useEffect(() => {
    setTasks(null);
    setPage({ next: "" });
    void load();
  }, [queryKey, version.value, credentials.value]);
  useLive(query, error, setTasks, load);
  return { tasks, ...page, error, busy, load };
}

/** Show the changes that polling finds; if loading failed, load again once polling recovers. */
function useLive(
  query: ListQuery,
  error: unknown,
  setTasks: StateUpdater<Task[] | null>,
  load: () => Promise<void>,
): void {
  const { changed, recoveries } = live.value;
  useEffect(() => {
    const show = (tasks: Task[]) =>
      tasks.length && setTasks((shown) => shown && withChanges(shown, tasks, query));
    if (!query.includeArtifacts) return void show(changed);
    const matching = changed.filter((task) => matches(task, query));
    void Promise.all(matching.map((task) => getTask(task.id).catch(() => task))).then(show);
  }, [changed]);
  useEffect(() => {
    if (error && recoveries) void load();
  }, [recoveries]);
}

type StateUpdater<T> = (update: (shown: T) => T) => void;

/** Replace the tasks that have changed; add new ones at the top, and remove those that no longer match. */
function withChanges(shown: Task[], changed: Task[], query: ListQuery): Task[] {
  const latest = new Map(changed.map((task) => [task.id, task]));
  const ids = new Set(shown.map((task) => task.id));
  const newTasks = changed.filter((task) => !ids.has(task.id));
  const updatedTasks = shown.map((task) => latest.get(task.id) ?? task);
  return [...newTasks, ...updatedTasks].filter((task) => !latest.has(task.id) || matches(task, query));
}

const matches = (task: Task, { state, contextId }: ListQuery) =>
  (!state || task.status.state === state) && (!contextId || task.contextId === contextId);

/** Append a page, without tasks that an earlier page had: a change can move a task to another page. */
function appendPage(tasks: Task[], page: Task[]): Task[] {
  const ids = new Set(tasks.map((task) => task.id));
  return [...tasks, ...page.filter((task) => !ids.has(task.id))];
}
