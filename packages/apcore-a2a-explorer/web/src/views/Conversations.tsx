import type { Task } from "../protocol/types";
import { href } from "../state/route";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { skillOf } from "./TaskTable";
import { moment, short } from "./times";
import { usePages } from "./usePages";

const LATEST = { pageSize: 100 };

/** The conversations of the latest tasks. */
export function Conversations() {
  const { tasks, next, error, busy, load } = usePages(LATEST);
  const groups = grouped(tasks ?? []);
  return (
    <section class="page wide">
      <header class="row">
        <h1>Conversations</h1>
        <a class="button" href={href("conversations", "new")}>
          Begin one
        </a>
        <button type="button" class="quiet" disabled={busy} onClick={() => void load()}>
          Refresh
        </button>
      </header>
      <p class="muted">
        All tasks with the same contextId{next && `, of the latest ${tasks!.length.toLocaleString()} tasks`}.
      </p>
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Asking for the tasks…</p>}
      {tasks?.length === 0 && <p class="empty">Nothing was said yet.</p>}
      <ul class="cards">
        {[...groups].map(([id, group]) => (
          <li key={id}>
            <a class="card" href={href("conversations", id)}>
              <span class="row">
                <strong class="mono">{short(id)}</strong>
                <StateBadge state={group[0]!.status.state} />
                <span class="muted">
                  {group.length} {group.length === 1 ? "task" : "tasks"}, {moment(group[0]!.status.timestamp)}
                </span>
              </span>
              <span class="muted">{[...new Set(group.map(skillOf))].filter(Boolean).join(", ")}</span>
            </a>
          </li>
        ))}
      </ul>
      {next && (
        <button type="button" disabled={busy} onClick={() => void load(next)}>
          Show older ones
        </button>
      )}
    </section>
  );
}

function grouped(tasks: Task[]): Map<string, Task[]> {
  const groups = new Map<string, Task[]>();
  for (const task of tasks) groups.set(task.contextId, [...(groups.get(task.contextId) ?? []), task]);
  return groups;
}
