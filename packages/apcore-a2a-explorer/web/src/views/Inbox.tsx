import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { skillOf } from "../protocol/taskFacts";
import type { Task } from "../protocol/types";
import { credentials } from "../state/credentials";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { rememberRun } from "../state/runs";
import { version } from "../state/settings";
import { inbox, inboxError, inboxIsFull, loadInbox } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { QuestionView } from "./QuestionView";
import { Late } from "./RunView";
import { When } from "./When";

/** The latest tasks that wait for an answer, and the outcome of those that were answered here. */
export function Inbox() {
  const [answered, setAnswered] = useState(new Map<string, Run>());
  useEffect(() => void loadInbox(), [version.value, credentials.value]);
  const tasks = inbox.value;
  const waiting = new Map(tasks?.map((task) => [task.id, task]));
  const ids = useOrder([...waiting.keys()]);
  const replied = (next: Run) => {
    const { id } = next.task!;
    rememberRun(`task ${id}`, next);
    setAnswered((earlier) => new Map(earlier).set(id, next));
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
      {tasks === null && !inboxError.value && <p class="muted">Loading paused tasks…</p>}
      {tasks?.length === 0 && !inboxError.value && <p class="empty">No tasks are waiting for your input.</p>}
      {ids.map((id) => (
        <Entry key={id} task={waiting.get(id)} run={answered.get(id)} replied={replied} />
      ))}
      {inboxIsFull.value && <p class="muted">Only the latest paused tasks are shown. More are waiting.</p>}
    </section>
  );
}

/** New ids, then all earlier ones in their old order: tasks do not swap places while users read them. */
function useOrder(ids: string[]): string[] {
  const order = useRef<string[]>([]);
  const newIds = ids.filter((id) => !order.current.includes(id));
  if (newIds.length) order.current = [...newIds, ...order.current];
  return order.current;
}

interface EntryProps {
  /** The task, if it waits for an answer. */
  task?: Task;
  /** The run of the latest answer. */
  run?: Run;
  replied: (next: Run) => void;
}

function Entry({ task, run, replied }: EntryProps) {
  if (task) {
    return (
      <Item task={task}>
        <QuestionView task={task} replied={replied} />
      </Item>
    );
  }
  return run ? <Answered run={run} /> : null;
}

function Item({ task, children }: { task: Task; children: ComponentChildren }) {
  return (
    <article class="card" aria-label={`Task ${task.id}`}>
      <header class="row">
        <h2 class="mono breakable">{skillOf(task) || "Task"}</h2>
        <a href={href("tasks", task.id)}>Open task</a>
        <a href={href("conversations", task.contextId)}>Open conversation</a>
        <span class="muted">
          <When time={task.status.timestamp} />
        </span>
      </header>
      {children}
    </article>
  );
}

function Answered({ run }: { run: Run }) {
  void run.changed.value;
  const status = useRef<HTMLParagraphElement>(null);
  // the pressed button is gone, so move the focus here
  useEffect(() => {
    if (document.activeElement === document.body) status.current?.focus({ preventScroll: true });
  }, []);
  return (
    <Item task={run.task!}>
      <p ref={status} role="status" tabIndex={-1}>
        {!run.late && "Answer sent. "}Task state: <StateBadge state={run.task!.status.state} />
      </p>
      <Late run={run} />
    </Item>
  );
}
