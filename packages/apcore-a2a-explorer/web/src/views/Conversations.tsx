import { useEffect, useState } from "preact/hooks";
import type { Task } from "../protocol/types";
import { credentials } from "../state/credentials";
import { href } from "../state/route";
import { version } from "../state/settings";
import { listTasks } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { skillOf } from "./TaskTable";
import { moment, short } from "./times";

/** The conversations of the latest tasks. */
export function Conversations() {
  const [tasks, setTasks] = useState<Task[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    listTasks({ pageSize: 100 }).then(
      (page) => (setTasks(page.tasks), setError(null)),
      (failure) => setError(failure),
    );
  }, [version.value, credentials.value]);
  const groups = grouped(tasks ?? []);
  return (
    <section class="page wide">
      <header class="row">
        <h1>Conversations</h1>
        <a class="button" href={href("conversations", "new")}>
          Begin one
        </a>
      </header>
      <p class="muted">All tasks with the same contextId, of the latest 100 tasks.</p>
      <Failure error={error} />
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
    </section>
  );
}

function grouped(tasks: Task[]): Map<string, Task[]> {
  const groups = new Map<string, Task[]>();
  for (const task of tasks) groups.set(task.contextId, [...(groups.get(task.contextId) ?? []), task]);
  return groups;
}
