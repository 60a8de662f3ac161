import { useEffect, useState } from "preact/hooks";
import { Tree } from "../parts/Tree";
import { parseJson, toJson } from "../protocol/json";
import { isTerminal } from "../protocol/states";
import { durationOf, skillOf, taskFacts } from "../protocol/taskFacts";
import { card, skillsById } from "../state/agent";
import { now } from "../state/clock";
import { credentials } from "../state/credentials";
import { whoami } from "../state/access";
import { go, href } from "../state/route";
import { meansNoEvents, type Run } from "../state/run";
import { addRun, runs, runFor, showRun, start } from "../state/runs";
import { version } from "../state/settings";
import { getTask } from "../state/tasks";
import type { Task } from "../protocol/types";
import { StateBadge } from "./Badges";
import { CopyButton } from "./CopyButton";
import { CopyView } from "./CopyView";
import { Failure } from "./Errors";
import { authorOf, MessageView } from "./MessageView";
import { PushView } from "./PushView";
import { CancelButton, RunView } from "./RunView";
import { TraceView } from "./TraceView";
import { When } from "./When";
import { formatDuration } from "./times";

/** A task with its current state, and all its events if the agent keeps them. */
export function TaskView({ id }: { id: string }) {
  const [snapshot, setSnapshot] = useState<Task | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = async () => {
    try {
      const task = await getTask(id);
      setSnapshot(task);
      setError(null);
      showTask(task);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => void load(), [version.value, credentials.value]);
  const run = runs.value.get(`task ${id}`);
  void run?.changed.value;
  const task = currentTask(run, snapshot);
  const isOver = run !== undefined && !run.isActive;
  // events lack the user's answers, but the history has them: load it after the run
  useEffect(() => {
    if (isOver) getTask(id).then(setSnapshot, () => {});
  }, [isOver, run]);
  return (
    <section class="page">
      <p>
        <a href="#/tasks">← Tasks</a>
      </p>
      <header class="row">
        <h1 class="breakable">{(task && nameOf(task)) || "Task"}</h1>
        {task && (
          <span role="status">
            <StateBadge state={task.status.state} />
          </span>
        )}
        <button type="button" class="quiet" onClick={() => void load()}>
          Refresh
        </button>
        {run && <CancelButton run={run} />}
      </header>
      <Failure error={error} />
      {!task && !error && <p class="muted">Loading the task…</p>}
      {task && <Facts task={{ ...task, metadata: (snapshot ?? task).metadata }} />}
      {run && <h2>Result</h2>}
      {run && (
        <RunView
          run={run}
          onReply={(next) => showRun(`task ${id}`, next)}
          bare
          rerun={rerunOf(snapshot)}
        />
      )}
      {task && whoami.value && <TraceView taskId={id} state={task.status.state} />}
      {task && <History task={isOver ? (snapshot ?? task) : task} />}
      {task && card.value?.capabilities.push && <PushView taskId={id} />}
      {task && <Raw task={task} />}
      <div class="stack">
        <CopyView operation={{ name: "get", id }} title="Copy request: get task" />
        <CopyView operation={{ name: "subscribe", id }} lastEventId="0" title="Copy request: subscribe to task" />
        <CopyView operation={{ name: "cancel", id }} title="Copy request: cancel task" />
      </div>
    </section>
  );
}

/** The current task: the run's, or the snapshot while past events of an ended task are replayed. */
const currentTask = (run: Run | undefined, snapshot: Task | null) =>
  snapshot && run?.isActive && isTerminal(snapshot.status.state) ? snapshot : (run?.task ?? snapshot);

/** Show a task; if the agent streams, also load the task's events. */
function showTask(task: Task): void {
  const key = `task ${task.id}`;
  runs.peek().get(key)?.stop();
  const run = runFor(task);
  run.task = task;
  showRun(key, run);
  if (!card.value?.capabilities.streaming) return;
  void run.watch().then(() => {
    // an agent that stores no events has none for a task that has ended
    if (meansNoEvents(run.error)) run.error = null;
    run.task ??= task;
    run.touch();
  });
}

/** The name of the task's skill, or the skill's id if the card does not list the skill. */
const nameOf = (task: Task) => skillsById.value.get(skillOf(task))?.name ?? skillOf(task);

/** A function that sends the user's first message to the skill of *task* again; undefined if either is unknown. */
function rerunOf(task: Task | null): (() => void) | undefined {
  const skill = task ? skillOf(task) : "";
  const message = task?.history.find((message) => message.role === "user");
  if (!skill || !message) return undefined;
  const mode = card.value?.capabilities.streaming ? "stream" : "send";
  return () => {
    addRun(skill, start(mode, message.parts, { skillId: skill }));
    go(href("skills", skill));
  };
}

function Facts({ task }: { task: Task }) {
  const skill = skillOf(task);
  const { principal, traceId, attempts, decisions } = taskFacts(task);
  const duration = durationOf(task, now.value);
  return (
    <dl class="facts">
      <dt>Task ID</dt>
      <dd>
        <span class="mono breakable">{task.id}</span> <CopyButton text={task.id} label="Copy task ID" iconOnly />
      </dd>
      <dt>Skill</dt>
      <dd>{skill ? <a class="mono" href={href("skills", skill)}>{skill}</a> : "not specified"}</dd>
      <dt>Conversation</dt>
      <dd>
        <a class="mono breakable" href={href("conversations", task.contextId)}>
          {task.contextId}
        </a>{" "}
        <CopyButton text={task.contextId} label="Copy conversation ID" iconOnly />
      </dd>
      {principal && (
        <>
          <dt>Principal</dt>
          <dd class="breakable">{principal}</dd>
        </>
      )}
      {traceId && (
        <>
          <dt>Trace ID</dt>
          <dd>
            <span class="mono breakable">{traceId}</span> <CopyButton text={traceId} label="Copy trace ID" iconOnly />
          </dd>
        </>
      )}
      <dt>Updated</dt>
      <dd>
        <When time={task.status.timestamp} />
      </dd>
      {duration !== undefined && (
        <>
          <dt>Duration</dt>
          <dd class="number">
            {formatDuration(duration)}
            {attempts !== undefined && attempts > 1 && `, ${attempts} attempts`}
          </dd>
        </>
      )}
      {decisions.length > 0 && (
        <>
          <dt>Decided by</dt>
          <dd>
            {decisions.map(({ principal: decider, act, timestamp }, index) => (
              <div key={index} class="breakable">
                {decider} ({act}, <When time={timestamp} />)
              </div>
            ))}
          </dd>
        </>
      )}
    </dl>
  );
}

function History({ task }: { task: Task }) {
  if (!task.history.length) return null;
  return (
    <section aria-labelledby="history">
      <h2 id="history">History</h2>
      <ol class="messages">
        {task.history.map((message, index) => (
          <li key={index}>
            <MessageView message={message} author={authorOf(task)} />
          </li>
        ))}
      </ol>
    </section>
  );
}

const Raw = ({ task }: { task: Task }) => (
  <details>
    <summary>Task as JSON</summary>
    <Tree value={parseJson(toJson(task))} open={1} />
  </details>
);
