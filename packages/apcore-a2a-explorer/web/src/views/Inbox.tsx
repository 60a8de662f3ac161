import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Task } from "../protocol/types";
import { credentials } from "../state/credentials";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { keep } from "../state/runs";
import { version } from "../state/settings";
import { inbox, inboxError, inboxIsFull, loadInbox } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { QuestionView } from "./QuestionView";
import { Late } from "./RunView";
import { skillOf } from "./TaskTable";
import { moment } from "./times";

const AGAIN = 10_000;

/** Every task that waits for somebody, and what has become of those that were answered here. */
export function Inbox() {
  const [answered, setAnswered] = useState<Run[]>([]);
  useEffect(() => {
    void loadInbox();
    const timer = setInterval(() => document.hidden || void loadInbox(), AGAIN);
    return () => clearInterval(timer);
  }, [version.value, credentials.value]);
  const tasks = inbox.value;
  const waiting = new Set(tasks?.map((task) => task.id));
  const replied = (next: Run) => {
    keep(`task ${next.task!.id}`, next);
    setAnswered((known) => [next, ...known.filter((each) => each.task!.id !== next.task!.id)]);
  };
  return (
    <section class="page wide">
      <header class="row">
        <h1>Inbox</h1>
        <button type="button" class="quiet" onClick={() => void loadInbox()}>
          Refresh
        </button>
      </header>
      <Failure error={inboxError.value} />
      {tasks === null && !inboxError.value && <p class="muted">Asking for paused tasks…</p>}
      {tasks?.length === 0 && !inboxError.value && <p class="empty">No task waits for an answer.</p>}
      {tasks?.map((task) => (
        <Item key={task.id} task={task}>
          <QuestionView task={task} replied={replied} />
        </Item>
      ))}
      {inboxIsFull.value && <p class="muted">These are the latest; more are waiting.</p>}
      {answered
        .filter((run) => !waiting.has(run.task!.id))
        .map((run) => (
          <Answered key={run.task!.id} run={run} />
        ))}
    </section>
  );
}

function Item({ task, children }: { task: Task; children: ComponentChildren }) {
  return (
    <article class="card" aria-label={`Task ${task.id}`}>
      <header class="row">
        <h2 class="mono breakable">{skillOf(task) || "Task"}</h2>
        <a href={href("tasks", task.id)}>Open the task</a>
        <a href={href("conversations", task.contextId)}>Conversation</a>
        <span class="muted">{moment(task.status.timestamp)}</span>
      </header>
      {children}
    </article>
  );
}

function Answered({ run }: { run: Run }) {
  void run.changed.value;
  return (
    <Item task={run.task!}>
      <p role="status">
        {!run.late && "You have answered. "}The task is <StateBadge state={run.task!.status.state} />
      </p>
      <Late run={run} />
    </Item>
  );
}
