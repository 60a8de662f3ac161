import type { ComponentChildren } from "preact";
import { counted } from "../parts/counted";
import { formatSize } from "../parts/files";
import { readCurrentFigures, type CurrentFigures } from "../protocol/apcoreRoutes";
import { healthOf } from "../state/health";
import { Bars } from "./Bars";
import { Failure } from "./Errors";
import { When } from "./When";
import { formatDuration } from "./times";
import { useApcoreRoute } from "./useApcoreRoute";

/** The agent's current figures, and its figures for the last hour. */
export function NowView() {
  const { data, error } = useApcoreRoute("now", readCurrentFigures);
  return (
    <section class="page">
      <header class="row">
        <h1>Now</h1>
        {data && <Status now={data} />}
      </header>
      <Failure error={error} />
      {!data && !error && <p class="muted">Loading figures…</p>}
      {data && <Figures now={data} />}
    </section>
  );
}

function Status({ now }: { now: CurrentFigures }) {
  const health = healthOf({ status: now.status });
  return (
    <span role="status" class={`state ${health?.tone ?? ""}`}>
      {health?.label ?? now.status}
    </span>
  );
}

/** Say which processes the figures cover. */
export function describeScope({ scope, workers = 0 }: { scope: string; workers?: number }): string {
  if (scope === "store") return "Open tasks are counted for all replicas; rates, threads and memory only for the server that answered.";
  if (scope === "workers") return workers ? `The figures cover all ${workers} workers of one server.` : "The figures cover all workers of one server.";
  return "The figures cover the process that answered.";
}

function Figures({ now }: { now: CurrentFigures }) {
  const { tasks, lastHour, threads, memory, webhooks } = now;
  const waitingCount = sum(tasks.inputRequired, tasks.authRequired);
  return (
    <>
      <p class="muted">{describeScope(now)}</p>
      <dl class="figures-grid">
        <Figure name="Running" value={tasks.working} href="#/tasks?state=working">
          {now.oldestWorking !== undefined && `longest ${formatDuration(now.oldestWorking * 1000)}`}
        </Figure>
        <Figure name="Queued" value={tasks.submitted} href="#/tasks?state=submitted" />
        <Figure name="Waiting for input" value={waitingCount} href="#/inbox" tone={waitingCount ? "warning" : ""}>
          {now.oldestWaiting !== undefined && `longest ${formatDuration(now.oldestWaiting * 1000)}`}
        </Figure>
        <Figure name="Completed in the last hour" value={lastHour.completed} href="#/tasks?state=completed" />
        <Figure name="Failed in the last hour" value={lastHour.failed} href="#/tasks?state=failed" tone={lastHour.failed ? "danger" : ""} />
        <Figure name="Canceled or rejected in the last hour" value={sum(lastHour.canceled, lastHour.rejected)} />
        <Figure name="Threads" value={`${threads.busy} of ${threads.limit}`} tone={threads.stuck ? "danger" : ""}>
          {threads.stuck > 0 && `${threads.stuck} stuck`}
        </Figure>
        <Figure name="Memory for tasks" value={memory.bytes === undefined ? undefined : formatSize(memory.bytes)}>
          {memory.limit !== undefined && `of ${formatSize(memory.limit)}`}
        </Figure>
        {webhooks && (
          <Figure name="Notifications waiting" value={webhooks.pending} href="#/webhooks" tone={webhooks.failed ? "danger" : ""}>
            {webhooks.failed ? `${counted(webhooks.failed, "webhook")} failed` : ""}
          </Figure>
        )}
      </dl>
      <section class="card" aria-labelledby="rate">
        <h2 id="rate">Runs in the last hour</h2>
        <Bars counts={now.started} failed={now.failed} label="Runs started" />
        <p class="axis muted">
          <span>60 min ago</span>
          <span>now</span>
        </p>
      </section>
      <Replicas now={now} />
    </>
  );
}

const sum = (...values: (number | undefined)[]) =>
  values.every((value) => value === undefined) ? undefined : values.reduce<number>((total, value) => total + (value ?? 0), 0);

interface FigureProps {
  name: string;
  value: number | string | undefined;
  href?: string;
  tone?: string;
  children?: ComponentChildren;
}

function Figure({ name, value, href, tone = "", children }: FigureProps) {
  const shown = value ?? "unknown";
  return (
    <div class={`figure ${tone}`}>
      <dt>{name}</dt>
      <dd>
        <span class="value number">{href ? <a href={href}>{shown}</a> : shown}</span> {children && <span class="more-info">{children}</span>}
      </dd>
    </div>
  );
}

function Replicas({ now }: { now: CurrentFigures }) {
  if (!now.replicas.length) return null;
  return (
    <section aria-labelledby="replicas">
      <h2 id="replicas">Replicas</h2>
      <table class="figures-table replicas" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">Replica</th>
            <th scope="col" role="columnheader">Leases</th>
            <th scope="col" role="columnheader">Running</th>
            <th scope="col" role="columnheader">Version</th>
            <th scope="col" role="columnheader">Started</th>
            <th scope="col" role="columnheader">Last report</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {now.replicas.map((replica) => (
            <tr key={replica.id} role="row">
              <td role="cell" class="name-cell mono breakable" title={`Host ${replica.host}, process ${replica.pid ?? "unknown"}`}>
                {replica.id} {replica.isSelf && <span class="tag">this one</span>}{" "}
                {replica.isDraining && <span class="state warning">Shutting down</span>}
              </td>
              <td role="cell" class="number" data-name="Leases">{replica.leases}</td>
              <td role="cell" class="number" data-name="Running">{replica.running}</td>
              <td role="cell" class="number" data-name="Version">{replica.version}</td>
              <td role="cell" data-name="Started"><When time={replica.startedAt} /></td>
              <td role="cell" data-name="Last report"><When time={replica.lastSeenAt} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
