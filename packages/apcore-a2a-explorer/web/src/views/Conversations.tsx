import { useEffect, useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { skillOf } from "../protocol/taskFacts";
import type { Task } from "../protocol/types";
import { href } from "../state/route";
import { listTasks } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { When } from "./When";
import { shortId } from "./times";
import { usePages } from "./usePages";

const QUERY = { pageSize: 100 };

/** The conversations of the latest tasks. */
export function Conversations() {
  const { tasks, next, error, busy, load } = usePages(QUERY);
  const groups = byConversation(tasks ?? []);
  return (
    <section class="page">
      <header class="row">
        <h1>Conversations</h1>
        <a class="button" href={href("conversations", "new")}>
          New conversation
        </a>
        <button type="button" class="quiet" disabled={busy} onClick={() => void load()}>
          Refresh
        </button>
      </header>
      <p class="muted">
        Tasks with the same contextId form a conversation.
        {next &&
          ` This page shows the conversations of the latest ${counted(tasks!.length, "task")}.`}
      </p>
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Loading conversations…</p>}
      {tasks?.length === 0 && <p class="empty">No conversations yet. Start one, or try a skill.</p>}
      <ul class="cards">
        {[...groups].map(([id, group]) => (
          <li key={id}>
            <a class="card" href={href("conversations", id)}>
              <span class="row">
                <strong class="mono">{shortId(id)}</strong>
                <StateBadge state={group[0]!.status.state} />
                <span class="muted">
                  <Size id={id} listed={group.length} isListComplete={!next} />,{" "}
                  <When time={group[0]!.status.timestamp} />
                </span>
              </span>
              <span class="muted">{[...new Set(group.map(skillOf))].filter(Boolean).join(", ")}</span>
            </a>
          </li>
        ))}
      </ul>
      {next && (
        <button type="button" disabled={busy} onClick={() => void load(next)}>
          Show older tasks
        </button>
      )}
    </section>
  );
}

interface SizeProps {
  id: string;
  /** The number of tasks of the conversation on this page. */
  listed: number;
  /** Whether the page lists all tasks of the agent. */
  isListComplete: boolean;
}

/** The number of tasks in a conversation, which may be more than the page lists. */
function Size({ id, listed, isListComplete }: SizeProps) {
  const [total, setTotal] = useState<number>();
  useEffect(() => {
    if (isListComplete) return;
    const query = { contextId: id, pageSize: 1 };
    listTasks(query, { isUnlogged: true }).then((page) => setTotal(page.total), () => {});
  }, [id, isListComplete, listed]);
  if (isListComplete || total !== undefined) return <>{counted(Math.max(listed, total ?? 0), "task")}</>;
  return <>{listed} or more tasks</>;
}

function byConversation(tasks: Task[]): Map<string, Task[]> {
  const groups = new Map<string, Task[]>();
  for (const task of tasks) groups.set(task.contextId, [...(groups.get(task.contextId) ?? []), task]);
  return groups;
}
