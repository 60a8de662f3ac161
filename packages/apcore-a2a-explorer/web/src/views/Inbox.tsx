import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { questionOf } from "../protocol/question";
import { skillOf, taskFacts } from "../protocol/taskFacts";
import type { Task } from "../protocol/types";
import { isDestructive, skillsById } from "../state/agent";
import { credentials } from "../state/credentials";
import { notifying, toggleNotifying } from "../state/notify";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { showRun } from "../state/runs";
import { version } from "../state/settings";
import { inbox, inboxError, inboxHasMore, loadInbox } from "../state/tasks";
import { StateBadge } from "./Badges";
import { BulkDecision } from "./BulkDecision";
import { Failure } from "./Errors";
import { QuestionView } from "./QuestionView";
import { LateNotice } from "./RunView";
import { When } from "./When";

/** The latest tasks that wait for an answer, and the outcome of those that were answered here. */
export function Inbox() {
  const [answeredRuns, setAnsweredRuns] = useState(new Map<string, Run>());
  useEffect(() => void loadInbox(), [version.value, credentials.value]);
  const tasks = inbox.value;
  const waitingTasks = new Map(tasks?.map((task) => [task.id, task]));
  const ids = useSortedIds(tasks ?? []);
  const list = useRef<HTMLElement>(null);
  const [chosen, setChosen] = useState(new Set<string>());
  const selectable = tasks?.filter(isSelectable) ?? [];
  useKeys(list);
  const onReply = (next: Run) => {
    const { id } = next.task!;
    showRun(`task ${id}`, next);
    setAnsweredRuns((earlier) => new Map(earlier).set(id, next));
  };
  return (
    <section class="page" ref={list}>
      <header class="row">
        <h1>Inbox</h1>
        <button type="button" class="quiet" onClick={() => void loadInbox()}>
          Refresh
        </button>
        <NotifyButton />
      </header>
      {Boolean(tasks?.length) && (
        <p class="muted keys">
          <kbd>j</kbd> next, <kbd>k</kbd> previous, <kbd>a</kbd> approve, <kbd>d</kbd> deny, <kbd>x</kbd> select
        </p>
      )}
      {selectable.length > 1 && <SelectAll ids={selectable.map((task) => task.id)} chosen={chosen} choose={setChosen} />}
      <BulkDecision
        tasks={selectable.filter((task) => chosen.has(task.id))}
        onReply={onReply}
        onDone={() => setChosen(new Set())}
      />
      <Failure error={inboxError.value} />
      {tasks === null && !inboxError.value && <p class="muted">Loading paused tasks…</p>}
      {tasks?.length === 0 && !inboxError.value && <p class="empty">No tasks are waiting for your input.</p>}
      {ids.map((id) => (
        <Entry
          key={id}
          task={waitingTasks.get(id)}
          run={answeredRuns.get(id)}
          onReply={onReply}
          checkbox={
            waitingTasks.has(id) && isSelectable(waitingTasks.get(id)!) && (
              <TaskCheckbox isChosen={chosen.has(id)} toggle={() => setChosen(withToggled(chosen, id))} id={id} />
            )
          }
        />
      ))}
      {inboxHasMore.value && <p class="muted">Only the latest paused tasks are shown. More are waiting.</p>}
    </section>
  );
}

/**
 * Whether a task can be part of a bulk decision: it waits for an approval that the user may give,
 * and its skill is on the card and not destructive.
 */
function isSelectable(task: Task): boolean {
  const question = questionOf(task);
  const skill = skillsById.value.get(question?.skill ?? "");
  const isApproval = question?.kind === "approval" && question.decidedBy !== "server";
  return isApproval && skill !== undefined && !isDestructive(skill.id);
}

function withToggled(chosen: Set<string>, id: string): Set<string> {
  const next = new Set(chosen);
  if (!next.delete(id)) next.add(id);
  return next;
}

function TaskCheckbox({ id, isChosen, toggle }: { id: string; isChosen: boolean; toggle: () => void }) {
  return (
    <label class="tick">
      <span class="sr">Select task {id}</span>
      <input type="checkbox" data-key="x" checked={isChosen} onChange={toggle} />
    </label>
  );
}

interface SelectAllProps {
  ids: string[];
  chosen: Set<string>;
  choose: (ids: Set<string>) => void;
}

function SelectAll({ ids, chosen, choose }: SelectAllProps) {
  const isAll = ids.every((id) => chosen.has(id));
  return (
    <label class="select-all">
      <input type="checkbox" checked={isAll} onChange={() => choose(new Set(isAll ? [] : ids))} /> Select all
      approvals, except for calls of destructive skills
    </label>
  );
}

/** The ids of all tasks seen so far, by deadline, then oldest first. Later changes to a task do not move it. */
function useSortedIds(tasks: Task[]): string[] {
  const sortKeys = useRef(new Map<string, [deadline: number, since: number]>());
  for (const task of tasks) {
    if (sortKeys.current.has(task.id)) continue;
    const timeOf = (time: string | undefined) => Date.parse(time ?? "") || Number.MAX_VALUE;
    sortKeys.current.set(task.id, [timeOf(questionOf(task)?.expiresAt), timeOf(task.status.timestamp)]);
  }
  return [...sortKeys.current].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]).map(([id]) => id);
}

/** Decide with `a` and `d`, select with `x`, and move with `j` and `k`, unless the user is typing. */
function useKeys(list: { current: HTMLElement | null }): void {
  useEffect(() => {
    const handleKey = (event: KeyboardEvent) => {
      const { target, key } = event;
      const isTyping = target instanceof HTMLElement && target.matches("input:not([type=checkbox]), textarea, select");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const items = [...(list.current?.querySelectorAll<HTMLElement>("article") ?? [])];
      const focusedIndex = items.findIndex((item) => item.contains(document.activeElement));
      if (key === "j" || key === "k") {
        items[Math.max(0, key === "j" ? Math.min(focusedIndex + 1, items.length - 1) : focusedIndex - 1)]?.focus();
      } else if (["a", "d", "x"].includes(key)) {
        items[focusedIndex]?.querySelector<HTMLElement>(`[data-key=${key}]`)?.click();
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
}

/** A button that turns desktop notifications on or off. */
function NotifyButton() {
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
  /** The run that the latest answer started. */
  run?: Run;
  onReply: (next: Run) => void;
  /** A checkbox that selects the task for a bulk decision. */
  checkbox: ComponentChildren;
}

function Entry({ task, run, onReply, checkbox }: EntryProps) {
  if (task) {
    return (
      <Item task={task} checkbox={checkbox}>
        <QuestionView task={task} onReply={onReply} />
      </Item>
    );
  }
  return run ? <Answered run={run} /> : null;
}

function Item({ task, checkbox, children }: { task: Task; checkbox?: ComponentChildren; children: ComponentChildren }) {
  const { principal } = taskFacts(task);
  return (
    <article class="card" aria-label={`Task ${task.id}`} tabIndex={-1}>
      <header class="row">
        {checkbox}
        <h2 class="breakable">{skillsById.value.get(skillOf(task))?.name ?? (skillOf(task) || "Task")}</h2>
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
  // the pressed button, which had the focus, is gone: focus the outcome
  useEffect(() => {
    if (document.activeElement === document.body) status.current?.focus({ preventScroll: true });
  }, []);
  return (
    <Item task={run.task!}>
      <p ref={status} role="status" tabIndex={-1}>
        {!run.isLate && "Answer sent. "}Task state: <StateBadge state={run.task!.status.state} />
        {decision && <span class="breakable"> Decided by {decision.principal} ({decision.act})</span>}
      </p>
      <LateNotice run={run} />
    </Item>
  );
}
