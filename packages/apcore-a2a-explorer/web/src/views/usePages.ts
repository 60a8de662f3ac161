import { useEffect, useRef, useState } from "preact/hooks";
import type { ListQuery, Task, TaskPage } from "../protocol/types";
import { credentials } from "../state/credentials";
import { version } from "../state/settings";
import { listTasks } from "../state/tasks";

/** Tasks, page by page; asked for anew when *query* is another one. */
export function usePages(
  query: ListQuery,
  read: (query: ListQuery) => Promise<TaskPage> = listTasks,
) {
  const [tasks, setTasks] = useState<Task[] | null>(null);
  const [page, setPage] = useState<Omit<TaskPage, "tasks">>({ next: "" });
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  const load = async (pageToken = "") => {
    const mine = ++turn.current;
    setBusy(true);
    try {
      const { tasks: found, ...rest } = await read({ ...query, pageToken });
      if (mine !== turn.current) return;
      setTasks((known) => joined(pageToken ? (known ?? []) : [], found));
      setPage(rest);
      setError(null);
    } catch (failure) {
      if (mine !== turn.current) return;
      setError(failure);
    }
    setBusy(false);
  };
  const asked = JSON.stringify(query);
  useEffect(() => {
    setTasks(null);
    setPage({ next: "" });
    void load();
  }, [asked, version.value, credentials.value]);
  return { tasks, ...page, error, busy, load };
}

/** A task that changes between two pages may be on both. */
function joined(known: Task[], more: Task[]): Task[] {
  const ids = new Set(known.map((each) => each.id));
  return [...known, ...more.filter((each) => !ids.has(each.id))];
}
