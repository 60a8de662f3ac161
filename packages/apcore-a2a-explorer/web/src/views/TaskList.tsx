import { useEffect, useRef, useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { isTerminal, STATES } from "../protocol/states";
import { skillOf } from "../protocol/taskFacts";
import type { ListQuery, Task, TaskState } from "../protocol/types";
import { go } from "../state/route";
import { BulkCancel } from "./BulkCancel";
import { CopyView } from "./CopyView";
import { Failure } from "./Errors";
import { FilterChips } from "./FilterChips";
import { TaskTable } from "./TaskTable";
import { useLeases } from "./useLeases";
import { usePages } from "./usePages";

const PAGE_SIZE = 100;

/** The list of tasks, with filters and a button to cancel several tasks at once. */
export function TaskList({ query }: { query: URLSearchParams }) {
  const listQuery = queryOf(query);
  const { tasks: listed, next, total, error, busy, load } = usePages(listQuery);
  const tasks = listed?.filter(usesSkill(query.get("skill") ?? "")) ?? null;
  const holders = useLeases(tasks ?? []);
  const [chosen, setChosen] = useState(new Set<string>());
  const cancelable = tasks?.filter((task) => chosen.has(task.id) && !isTerminal(task.status.state)) ?? [];
  return (
    <section class="page">
      <header class="row">
        <h1>Tasks</h1>
        <button type="button" class="quiet" disabled={busy} onClick={() => void load()}>
          Refresh
        </button>
        {tasks && total !== undefined && <span class="muted">{counted(total, "task")}</span>}
      </header>
      <FilterChips query={query} />
      <details class="filter-box" open={query.size > 0 || innerWidth > 720}>
        <summary>Filters</summary>
        <Filters query={query} />
      </details>
      <BulkCancel ids={cancelable.map((task) => task.id)} onDone={() => (setChosen(new Set()), void load())} />
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Loading tasks…</p>}
      {tasks?.length === 0 && (
        <p class="empty">
          {query.size ? "No tasks match these filters." : "No tasks yet. Try a skill to create one."}
        </p>
      )}
      {tasks && tasks.length > 0 && <TaskTable tasks={tasks} chosen={chosen} choose={setChosen} holders={holders} />}
      {next && (
        <button type="button" disabled={busy} onClick={() => void load(next)}>
          Show older tasks
        </button>
      )}
      <CopyView operation={{ name: "list", query: listQuery }} />
    </section>
  );
}

/** A filter for tasks by skill. It applies only to the loaded tasks, because A2A has no such filter. */
const usesSkill = (skill: string) => (task: Task) => !skill || skillOf(task).includes(skill);

function queryOf(query: URLSearchParams): ListQuery {
  const after = new Date(query.get("after") ?? "");
  return {
    state: (query.get("state") as TaskState) || undefined,
    contextId: query.get("context") || undefined,
    // users may edit the URL, so the date may be invalid
    changedAfter: Number.isNaN(after.getTime()) ? undefined : after.toISOString(),
    pageSize: PAGE_SIZE,
  };
}

/** The filters of the list. The fields follow the URL, unless a field has just changed it. */
function Filters({ query }: { query: URLSearchParams }) {
  const form = useRef<HTMLFormElement>(null);
  const writtenQuery = useRef<string | null>(null);
  useEffect(() => {
    if (writtenQuery.current === query.toString()) return;
    for (const field of form.current!.querySelectorAll<HTMLInputElement>("[name]")) {
      field.value = query.get(field.name) ?? "";
    }
  }, [query]);
  const apply = () => {
    const fields = Array.from(new FormData(form.current!), ([name, value]) => [name, String(value).trim()]);
    const newQuery = new URLSearchParams(fields.filter(([, value]) => value) as [string, string][]);
    writtenQuery.current = newQuery.toString();
    go(newQuery.size ? `#/tasks?${newQuery}` : "#/tasks");
  };
  return (
    <form
      ref={form}
      class="filters"
      onChange={apply}
      onSubmit={(event) => (event.preventDefault(), apply())}
    >
      <label>
        State
        <select name="state">
          <option value="">Any</option>
          {STATES.map((state) => (
            <option key={state}>{state}</option>
          ))}
        </select>
      </label>
      <label>
        Skill (in loaded tasks only)
        <input name="skill" class="mono" placeholder="skill id" />
      </label>
      <label>
        Conversation
        <input name="context" class="mono" placeholder="contextId" />
      </label>
      <label>
        Updated since
        <input name="after" type="datetime-local" />
      </label>
      {query.size > 0 && (
        <button type="button" class="quiet" onClick={() => go("#/tasks")}>
          Clear filters
        </button>
      )}
    </form>
  );
}
