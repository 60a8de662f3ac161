import { useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { readAttempt, type Attempt, type Webhook } from "../protocol/apcoreRoutes";
import { object } from "../protocol/values";
import { callApcoreRoute } from "../state/agent";
import { href } from "../state/route";
import { Failure } from "./Errors";
import { When } from "./When";
import { formatDuration, shortId } from "./times";

interface Props {
  webhooks: Webhook[];
  /** Whether to show the task of each webhook. */
  showsTask?: boolean;
  reload: () => Promise<unknown>;
}

/** Webhooks with their delivery attempts, and buttons to send a test and to redeliver. */
export const WebhookList = ({ webhooks, showsTask = false, reload }: Props) => (
  <ul class="bare">
    {webhooks.map((webhook) => (
      <li key={`${webhook.taskId} ${webhook.id}`} class="card">
        <Entry webhook={webhook} showsTask={showsTask} reload={reload} />
      </li>
    ))}
  </ul>
);

function Entry({ webhook, showsTask, reload }: { webhook: Webhook; showsTask: boolean; reload: () => Promise<unknown> }) {
  const { taskId, id, url, state, reason, pending, nextAttemptAt, attempts } = webhook;
  const [error, setError] = useState<unknown>(null);
  const [outcome, setOutcome] = useState("");
  const act = async (name: "test" | "redeliver", describe: (response: unknown) => string) => {
    try {
      setOutcome(describe(await callApcoreRoute(`tasks/${encodeURIComponent(taskId)}/webhooks/${encodeURIComponent(id)}/${name}`, "POST")));
      setError(null);
    } catch (failure) {
      setOutcome("");
      setError(failure);
    }
    await reload();
  };
  const isFailed = state === "failed";
  return (
    <>
      <div class="row">
        <strong class="mono breakable">{url}</strong>
        <span class={`state ${isFailed ? "danger" : "good"}`}>{state}</span>
        {showsTask && (
          <a class="mono" href={href("tasks", taskId)} title={taskId}>
            Task {shortId(taskId)}
          </a>
        )}
        <span class="muted">
          {counted(pending, "notification")} waiting
          {nextAttemptAt && (
            <>
              , next attempt <When time={nextAttemptAt} />
            </>
          )}
        </span>
      </div>
      {reason && <p class="breakable">{reason}</p>}
      <div class="bar">
        <button type="button" onClick={() => void act("test", testOutcome)}>
          Send test
        </button>
        <button type="button" onClick={() => void act("redeliver", redeliveryOutcome)}>
          Redeliver
        </button>
        <span role="status" class="breakable">
          {outcome}
        </span>
      </div>
      <Failure error={error} />
      <Attempts attempts={attempts} />
    </>
  );
}

function testOutcome(response: unknown): string {
  const { result, status, reason } = readAttempt(object(response)?.attempt);
  return ["Test", result, status && `with status ${status}`, reason && `(${reason})`].filter(Boolean).join(" ");
}

function redeliveryOutcome(response: unknown): string {
  const requeued = object(response)?.requeued;
  return typeof requeued === "number" ? `${counted(requeued, "notification")} queued again` : "Queued again";
}

const TONES: Record<string, string> = { delivered: "good", retried: "warning", failed: "danger" };

function Attempts({ attempts }: { attempts: Attempt[] }) {
  if (!attempts.length) return <p class="muted">No attempts yet</p>;
  return (
    <details>
      <summary>{counted(attempts.length, "attempt")}, newest first</summary>
      <ul class="bare">
        {attempts.map((attempt, index) => (
          <li key={index} class="row">
            <span class={`state ${TONES[attempt.result] ?? ""}`}>{attempt.result}</span>
            {attempt.status !== undefined && <span class="number">HTTP {attempt.status}</span>}
            {attempt.seconds !== undefined && <span class="number muted">{formatDuration(attempt.seconds * 1000)}</span>}
            <When time={attempt.at} />
            {attempt.reason && <span class="breakable">{attempt.reason}</span>}
          </li>
        ))}
      </ul>
    </details>
  );
}
