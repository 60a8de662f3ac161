import { useEffect, useState } from "preact/hooks";
import { STATES } from "../protocol/states";
import type { ListQuery, Task, TaskState } from "../protocol/types";
import { credentials } from "../state/credentials";
import { go } from "../state/route";
import { version } from "../state/settings";
import { listTasks } from "../state/tasks";
import { CopyView } from "./CopyView";
import { Failure } from "./Errors";
import { TaskTable } from "./TaskTable";

const SIZE = 25;

export function TaskList({ query }: { query: URLSearchParams }) {
  const asked: ListQuery = {
    state: (query.get("state") as TaskState) || undefined,
    contextId: query.get("context") || undefined,
    after: query.get("after") ? new Date(query.get("after")!).toISOString() : undefined,
    pageSize: SIZE,
  };
  const [tasks, setTasks] = useState<Task[] | null>(null);
  const [next, setNext] = useState("");
  const [total, setTotal] = useState<number>();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const load = async (pageToken = "") => {
    setBusy(true);
    try {
      const page = await listTasks({ ...asked, pageToken });
      setTasks((known) => [...(pageToken ? (known ?? []) : []), ...page.tasks]);
      setNext(page.next);
      setTotal(page.total);
      setError(null);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => void load(), [version.value, credentials.value]);
  return (
    <section class="page wide">
      <header class="row">
        <h1>Tasks</h1>
        <button type="button" class="quiet" disabled={busy} onClick={() => void load()}>
          Refresh
        </button>
        {total !== undefined && <span class="muted">{total.toLocaleString()} in all</span>}
      </header>
      <Filters query={query} />
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Asking for the tasks…</p>}
      {tasks?.length === 0 && (
        <p class="empty">
          {query.size ? "No task matches these filters." : "There are no tasks yet. Try a skill, and it is here."}
        </p>
      )}
      {tasks && tasks.length > 0 && <TaskTable tasks={tasks} />}
      {next && (
        <button type="button" disabled={busy} onClick={() => void load(next)}>
          Show older ones
        </button>
      )}
      <CopyView operation={{ name: "list", query: asked }} />
    </section>
  );
}

function Filters({ query }: { query: URLSearchParams }) {
  const set = (name: string, value: string) => {
    const changed = new URLSearchParams(query);
    if (value) changed.set(name, value);
    else changed.delete(name);
    go(changed.size ? `#/tasks?${changed}` : "#/tasks");
  };
  return (
    <div class="filters">
      <label>
        State
        <select
          value={query.get("state") ?? ""}
          onChange={(event) => set("state", event.currentTarget.value)}
        >
          <option value="">any</option>
          {STATES.map((state) => (
            <option key={state}>{state}</option>
          ))}
        </select>
      </label>
      <label>
        Conversation
        <input
          class="mono"
          placeholder="contextId"
          value={query.get("context") ?? ""}
          onChange={(event) => set("context", event.currentTarget.value.trim())}
        />
      </label>
      <label>
        Changed since
        <input
          type="datetime-local"
          value={query.get("after") ?? ""}
          onChange={(event) => set("after", event.currentTarget.value)}
        />
      </label>
      {query.size > 0 && (
        <button type="button" class="quiet" onClick={() => go("#/tasks")}>
          Clear
        </button>
      )}
    </div>
  );
}
