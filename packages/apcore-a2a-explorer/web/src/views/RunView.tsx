import { ArtifactView } from "../parts/ArtifactView";
import { PartView } from "../parts/PartView";
import { HttpError, RpcError, taskErrors } from "../protocol/errors";
import { isSettled, isTerminal } from "../protocol/states";
import { card } from "../state/agent";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { StateBadge } from "./Badges";
import { CopyView } from "./CopyView";
import { Errors, Failure } from "./Errors";
import { QuestionView } from "./QuestionView";
import { Timeline } from "./Timeline";
import { duration, short } from "./times";
import { useClock } from "./useClock";

interface Props {
  run: Run;
  /** A paused task was answered: *next* watches on. */
  replied: (next: Run) => void;
  /** Whether the view around it tells which task it is. */
  bare?: boolean;
}

/** A run as it is now: its state, what it asks, its artifacts, its events. */
export function RunView({ run, replied, bare = false }: Props) {
  // signals render again who reads them, and whose props are others
  void run.changed.value;
  const { task } = run;
  return (
    <section class="run" aria-label="Result">
      {!bare && <Head run={run} />}
      <Lost run={run} />
      {!isBroken(run) && <Failure error={run.error} />}
      <Late run={run} />
      <ProgressView run={run} />
      {task && <QuestionView task={task} run={run} replied={replied} />}
      <Said run={run} />
      {task?.artifacts.map((artifact) => (
        <ArtifactView key={artifact.artifactId} artifact={artifact} />
      ))}
      {run.events.length > 0 && <Timeline run={run} count={run.events.length} />}
      {!bare && <CopyView operation={run.operation} title="Copy the request that was sent" />}
    </section>
  );
}

function Head({ run }: { run: Run }) {
  void run.changed.value;
  const { task } = run;
  const running = run.active || run.connection === "lost";
  const now = useClock(running);
  return (
    <header class="row">
      <h3>Result</h3>
      <span role="status">
        {task ? (
          <StateBadge state={task.status.state} />
        ) : run.active ? (
          <span class="badge busy">sending</span>
        ) : (
          <span class="badge plain">{outcome(run)}</span>
        )}
      </span>
      <span class="muted number">{duration((run.endedAt ?? now) - run.startedAt)}</span>
      {task && (
        <a href={href("tasks", task.id)} title={task.id}>
          Task <span class="mono">{short(task.id)}</span>
        </a>
      )}
      {task && (
        <a href={href("conversations", task.contextId)}>
          Conversation
        </a>
      )}
      <Cancel run={run} />
    </header>
  );
}

/** What became of a request that made no task. */
function outcome({ answer, error }: Run): string {
  if (answer) return "answered";
  if (error instanceof RpcError || error instanceof HttpError) return "refused";
  return error ? "no answer" : "stopped";
}

export function Cancel({ run }: { run: Run }) {
  void run.changed.value;
  const { task } = run;
  if (task && !isTerminal(task.status.state)) {
    return (
      <button type="button" class="danger" onClick={() => void run.cancel()}>
        Cancel the task
      </button>
    );
  }
  if (task || !run.active) return null;
  return (
    <button type="button" onClick={() => run.stop()}>
      Stop waiting
    </button>
  );
}

function Lost({ run }: { run: Run }) {
  void run.changed.value;
  const task = run.task;
  if (isBroken(run)) {
    return (
      <div class="failure" role="alert">
        <strong>The connection is lost.</strong> What is here is what came before;{" "}
        {run.connection === "lost"
          ? "the page tries to connect again."
          : "the page has tried for a while, and tries no more."}{" "}
        <button type="button" onClick={() => (run.stop(), run.resume())}>
          Connect now
        </button>
      </div>
    );
  }
  const idle = card.value?.capabilities.streaming && !run.active && task && !isSettled(task.status.state);
  if (!idle) return null;
  return (
    <div class="notice">
      {!run.error && "The task goes on; nobody here watches it. "}
      <button type="button" onClick={() => run.resume()}>
        Watch it
      </button>
    </div>
  );
}

export function Late({ run }: { run: Run }) {
  void run.changed.value;
  if (!run.late) return null;
  return (
    <div class="notice" role="status">
      <strong>Your answer came too late, and does not count.</strong> Somebody else has answered
      before, or the task was canceled or has expired.
    </div>
  );
}

const isBroken = ({ connection }: Run) => connection === "lost" || connection === "given up";

function ProgressView({ run }: { run: Run }) {
  void run.changed.value;
  const { progress, task } = run;
  if (!progress || !task || isSettled(task.status.state)) return null;
  return (
    <div class="progress">
      {progress.part !== undefined && (
        <progress value={progress.part} max={1} aria-label="Progress" />
      )}
      <span class="muted">
        {progress.part !== undefined && `${Math.round(progress.part * 100)} % `}
        {progress.label}
      </span>
    </div>
  );
}

/** What the agent said with its last state, or instead of a task. */
function Said({ run }: { run: Run }) {
  void run.changed.value;
  const message = run.answer ?? (asks(run) ? undefined : run.task?.status.message);
  if (!message?.parts.length) return null;
  return (
    <section class="artifact" aria-label="The agent says">
      {message.parts.map((part, index) => (
        <PartView key={index} part={part} />
      ))}
      <Errors errors={taskErrors(run.task)} />
    </section>
  );
}

const asks = (run: Run) =>
  run.task?.status.state === "input-required" || run.task?.status.state === "auth-required";
