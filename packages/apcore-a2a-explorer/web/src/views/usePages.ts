import { useEffect, useRef, useState } from "preact/hooks";
import type { ListQuery, Task, TaskPage } from "../protocol/types";
import { credentials } from "../state/credentials";
import { version } from "../state/settings";
import { listTasks } from "../state/tasks";

/** Tasks page by page; loads them again when *query* changes. */
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
  return { tasks, ...page, error, busy, load };
}

/** Append a page, without tasks that were on an earlier one: tasks that change move between pages. */
function appendPage(tasks: Task[], page: Task[]): Task[] {
  const ids = new Set(tasks.map((each) => each.id));
  return [...tasks, ...page.filter((each) => !ids.has(each.id))];
}
