import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { questionOf } from "../protocol/question";
import { skillOf, taskFacts } from "../protocol/taskFacts";
import type { Task } from "../protocol/types";
import { skillsById } from "../state/agent";
import { credentials } from "../state/credentials";
import { notifying, toggleNotifying } from "../state/notify";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { rememberRun } from "../state/runs";
import { version } from "../state/settings";
import { inbox, inboxError, inboxIsFull, loadInbox } from "../state/tasks";
import { ApprovalView } from "./ApprovalView";
import { StateBadge } from "./Badges";
import { Countdown } from "./Countdown";
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
  const ids = useOrder(tasks ?? []);
  const list = useRef<HTMLElement>(null);
  useKeys(list);
  const replied = (next: Run) => {
    const { id } = next.task!;
    rememberRun(`task ${id}`, next);
    setAnswered((earlier) => new Map(earlier).set(id, next));
  };
  return (
    <section class="page wide" ref={list}>
      <header class="row">
        <h1>Inbox</h1>
        <button type="button" class="quiet" onClick={() => void loadInbox()}>
          Refresh
        </button>
        <Notify />
      </header>
      {Boolean(tasks?.length) && (
        <p class="muted keys">
          <kbd>j</kbd> next, <kbd>k</kbd> previous, <kbd>a</kbd> approve, <kbd>d</kbd> deny
        </p>
      )}
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

/** The ids by deadline, then by age, with those of tasks that were answered here where they were. */
function useOrder(tasks: Task[]): string[] {
  const places = useRef(new Map<string, [deadline: number, since: number]>());
  for (const task of tasks) {
    if (places.current.has(task.id)) continue;
    const timeOf = (time: string | undefined) => Date.parse(time ?? "") || Number.MAX_VALUE;
    places.current.set(task.id, [timeOf(questionOf(task)?.expiresAt), timeOf(task.status.timestamp)]);
  }
  return [...places.current].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]).map(([id]) => id);
}

/** Decide with `a` and `d`, and move with `j` and `k`, unless the user is typing. */
function useKeys(list: { current: HTMLElement | null }): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const { target, key } = event;
      const isTyping = target instanceof HTMLElement && target.matches("input, textarea, select");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const items = [...(list.current?.querySelectorAll<HTMLElement>("article") ?? [])];
      const at = items.findIndex((each) => each.contains(document.activeElement));
      if (key === "j" || key === "k") {
        items[Math.max(0, key === "j" ? Math.min(at + 1, items.length - 1) : at - 1)]?.focus();
      } else if (key === "a" || key === "d") {
        items[at]?.querySelector<HTMLElement>(`[data-key=${key}]`)?.click();
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** Asks for desktop notifications. */
function Notify() {
  if (notifying.value === null) return null;
  return (
    <button type="button" class="quiet" aria-pressed={notifying.value} onClick={() => void toggleNotifying()}>
      {notifying.value ? "Desktop notifications are on" : "Notify me on this desktop"}
    </button>
  );
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
        <Ask task={task} replied={replied} />
      </Item>
    );
  }
  return run ? <Answered run={run} /> : null;
}

function Ask({ task, replied }: { task: Task; replied: (next: Run) => void }) {
  const question = questionOf(task);
  if (question?.kind !== "approval" || question.decidedBy === "server") {
    return <QuestionView task={task} replied={replied} />;
  }
  return <ApprovalView task={task} question={question} replied={replied} />;
}

function Item({ task, children }: { task: Task; children: ComponentChildren }) {
  const expiresAt = questionOf(task)?.expiresAt;
  const { principal } = taskFacts(task);
  return (
    <article class="card" aria-label={`Task ${task.id}`} tabIndex={-1}>
      <header class="row">
        <h2 class="breakable">{skillsById.value.get(skillOf(task))?.name ?? (skillOf(task) || "Task")}</h2>
        {expiresAt && <Countdown time={expiresAt} />}
        {principal && <span class="breakable">Requested by {principal}</span>}
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
  const decision = taskFacts(run.task!).decisions.at(-1);
  // the pressed button is gone, so move the focus here
  useEffect(() => {
    if (document.activeElement === document.body) status.current?.focus({ preventScroll: true });
  }, []);
  return (
    <Item task={run.task!}>
      <p ref={status} role="status" tabIndex={-1}>
        {!run.late && "Answer sent. "}Task state: <StateBadge state={run.task!.status.state} />
        {decision && <span class="breakable"> Decided by {decision.principal} ({decision.act})</span>}
      </p>
      <Late run={run} />
    </Item>
  );
}
