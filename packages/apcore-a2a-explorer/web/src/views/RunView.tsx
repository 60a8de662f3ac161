import { useEffect } from "preact/hooks";
import { ArtifactView } from "../parts/ArtifactView";
import { failureOf, HttpError, RpcError, taskErrors } from "../protocol/errors";
import { isSettled, isTerminal } from "../protocol/states";
import { object, text } from "../protocol/values";
import { card, outputSchemaOf } from "../state/agent";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { StateBadge } from "./Badges";
import { CopyButton } from "./CopyButton";
import { CopyView } from "./CopyView";
import { Errors, Failure } from "./Errors";
import { MessageParts } from "./MessageView";
import { QuestionView } from "./QuestionView";
import { skillOf } from "../protocol/taskFacts";
import { Timeline } from "./Timeline";
import { formatDuration, shortId } from "./times";
import { useClock } from "./useClock";

interface Props {
  run: Run;
  /** Called after an answer, with the run that continues the task. */
  onReply: (next: Run) => void;
  /** Whether the surrounding view already identifies the task. */
  bare?: boolean;
  /** Runs the skill again with the same input; undefined hides the button. */
  rerun?: () => void;
}

/** The current state of a run: its status, question, artifacts and events. */
export function RunView({ run, onReply, bare = false, rerun }: Props) {
  // reading the signal subscribes this view to its changes
  void run.changed.value;
  useEffect(() => void run.load(), [run]);
  const { task } = run;
  return (
    <section class="run" aria-label="Result">
      {!bare && <Head run={run} />}
      <ConnectionNotice run={run} />
      {!isBroken(run) && <Failure error={run.error} />}
      <LateNotice run={run} />
      <ProgressView run={run} />
      {task && <QuestionView task={task} run={run} onReply={onReply} />}
      <AgentMessage run={run} />
      <AfterFailure run={run} rerun={rerun} />
      {task?.artifacts.map((artifact) => (
        <ArtifactView
          key={artifact.artifactId}
          artifact={artifact}
          schema={outputSchemaOf(run.skillId ?? skillOf(task))}
        />
      ))}
      {run.events.length > 0 && <Timeline run={run} count={run.events.length} />}
      {!bare && <CopyView operation={run.operation} title="Copy the sent request" />}
    </section>
  );
}

function Head({ run }: { run: Run }) {
  void run.changed.value;
  const { task } = run;
  const isRunning = run.isActive || run.connection === "lost";
  const now = useClock(isRunning);
  return (
    <header class="row">
      <h3 class="sr">Result</h3>
      <span role="status">
        {run.isTaskLost ? (
          <span class="badge danger">lost</span>
        ) : task ? (
          <StateBadge state={task.status.state} />
        ) : run.isActive ? (
          <span class="badge busy">sending</span>
        ) : (
          <span class="badge plain">{outcome(run)}</span>
        )}
      </span>
      <span class="muted number">{formatDuration((run.endedAt ?? now) - run.startedAt)}</span>
      {task && (
        <a href={href("tasks", task.id)} title={task.id}>
          Task <span class="mono">{shortId(task.id)}</span>
        </a>
      )}
      {task && (
        <a href={href("conversations", task.contextId)}>
          Conversation
        </a>
      )}
      <CancelButton run={run} />
    </header>
  );
}

/** The outcome of a request that created no task. */
function outcome({ agentMessage, error }: Run): string {
  if (agentMessage) return "answered";
  if (error instanceof RpcError || error instanceof HttpError) return "request failed";
  return error ? "no response" : "stopped";
}

export function CancelButton({ run }: { run: Run }) {
  void run.changed.value;
  const { task } = run;
  if (run.isTaskLost) return null;
  if (task && !isTerminal(task.status.state)) {
    return (
      <button type="button" class="danger" onClick={() => void run.cancel()}>
        Cancel task
      </button>
    );
  }
  if (task || !run.isActive) return null;
  return (
    <button type="button" onClick={() => run.stop()}>
      Stop waiting
    </button>
  );
}

function ConnectionNotice({ run }: { run: Run }) {
  void run.changed.value;
  const task = run.task;
  if (isBroken(run)) {
    return (
      <div class="failure" role="alert">
        <strong>Connection lost.</strong> Only events received so far are shown.{" "}
        {run.connection === "lost"
          ? "The page is trying to reconnect."
          : "The page has stopped trying to reconnect."}{" "}
        <button type="button" onClick={() => (run.stop(), run.resume())}>
          Reconnect now
        </button>
      </div>
    );
  }
  const canFollow = card.value?.capabilities.streaming && !run.isActive && task && !isSettled(task.status.state);
  if (!canFollow || run.isTaskLost) return null;
  return (
    <div class="notice">
      {!run.error && "The task is still running, but this page is not following it. "}
      <button type="button" onClick={() => run.resume()}>
        Follow task
      </button>
    </div>
  );
}

export function LateNotice({ run }: { run: Run }) {
  void run.changed.value;
  if (!run.isLate) return null;
  return (
    <div class="notice" role="status">
      <strong>Your answer came too late and was not used.</strong> The task had already been
      answered or canceled, or had expired.
    </div>
  );
}

const isBroken = ({ connection }: Run) => connection === "lost" || connection === "given up";

function ProgressView({ run }: { run: Run }) {
  void run.changed.value;
  const { progress, task } = run;
  if (!progress || !task || run.isTaskLost || isSettled(task.status.state)) return null;
  return (
    <div class="progress">
      {progress.fraction !== undefined && (
        <progress value={progress.fraction} max={1} aria-label="Progress" />
      )}
      <span class="muted">
        {progress.fraction !== undefined && `${Math.round(progress.fraction * 100)}% `}
        {progress.label}
      </span>
    </div>
  );
}

/** The error code and the ids of a failed run, and a button to run the skill again. */
function AfterFailure({ run, rerun }: { run: Run; rerun?: () => void }) {
  void run.changed.value;
  const { task, error } = run;
  const hasFailed = task?.status.state === "failed" || run.isTaskLost || (error !== null && !run.isActive);
  if (!hasFailed || isBroken(run)) return null;
  const { code, type } = failureOf(task);
  const traceId = traceOf(run);
  return (
    <div class="notice ids">
      {run.isTaskLost && (
        <p>The agent no longer knows this task, perhaps because it keeps tasks only in memory and has restarted.</p>
      )}
      <dl class="facts">
        {code && (
          <>
            <dt>Code</dt>
            <dd class="breakable">
              <code>{code}</code> {type}
            </dd>
          </>
        )}
        {task && <Id name="Task ID" id={task.id} />}
        {traceId && <Id name="Trace ID" id={traceId} />}
      </dl>
      {traceId && task && (
        <p class="muted">
          The agent's log may have details. Search the log for <code class="breakable">trace_id={traceId}</code>
        </p>
      )}
      {rerun && (
        <button type="button" onClick={rerun}>
          Run again with the same input
        </button>
      )}
    </div>
  );
}

const Id = ({ name, id }: { name: string; id: string }) => (
  <>
    <dt>{name}</dt>
    <dd>
      <span class="mono breakable">{id}</span> <CopyButton text={id} label={`Copy ${name}`} iconOnly />
    </dd>
  </>
);

/** The trace id that the agent reports, or else the trace id that the page sent. */
const traceOf = ({ task, sent, traceId }: Run) =>
  text(object(task?.metadata?.apcore)?.traceId) ?? ("message" in sent ? traceId : undefined);

/** The message that the agent sent instead of a task, or the status message of a task that is not paused. */
function AgentMessage({ run }: { run: Run }) {
  void run.changed.value;
  const message = run.agentMessage ?? (hasQuestion(run) ? undefined : run.task?.status.message);
  if (!message?.parts.length) return null;
  return (
    <section class="artifact" aria-label="Message from the agent">
      <MessageParts message={message} />
      <Errors errors={taskErrors(run.task)} />
    </section>
  );
}

const hasQuestion = (run: Run) =>
  run.task?.status.state === "input-required" || run.task?.status.state === "auth-required";
