import { useState } from "preact/hooks";
import { readPerformance, type NotableTask, type SkillFigures } from "../protocol/apcoreRoutes";
import { skillsById } from "../state/agent";
import { href } from "../state/route";
import { StateBadge } from "./Badges";
import { Bars } from "./Bars";
import { Failure } from "./Errors";
import { describeScope } from "./NowView";
import { When } from "./When";
import { formatDuration, shortId } from "./times";
import { useApcoreRoute } from "./useApcoreRoute";

type Order = "runs" | "failed" | "p50" | "p95" | "p99";

const COLUMNS: [Order, string][] = [
  ["runs", "Runs"],
  ["failed", "Failed"],
  ["p50", "p50"],
  ["p95", "p95"],
  ["p99", "p99"],
];

/** Rates, latencies and errors of each skill that ran in the last hour. */
export function PerformanceView() {
  const { data, error } = useApcoreRoute("skills", readPerformance);
  const [order, setOrder] = useState<Order>("runs");
  const skills = [...(data?.skills ?? [])].sort((a, b) => (b[order] ?? -1) - (a[order] ?? -1));
  return (
    <section class="page">
      <h1>Performance</h1>
      <Failure error={error} />
      {!data && !error && <p class="muted">Loading figures…</p>}
      {data && (
        <p class="muted">
          Skills that ran in the last hour. {describeScope(data)}
        </p>
      )}
      {data && !skills.length && <p class="empty">No skill has run in the last hour.</p>}
      {skills.length > 0 && (
        <table class="figures-table skills" role="table">
          <thead role="rowgroup">
            <tr role="row">
              <th scope="col" role="columnheader">Skill</th>
              <th scope="col" role="columnheader">Last hour</th>
              {COLUMNS.map(([name, label]) => (
                <th key={name} scope="col" role="columnheader" aria-sort={order === name ? "descending" : undefined}>
                  <button type="button" class="quiet small" onClick={() => setOrder(name)}>
                    {label}
                    {order === name && <span aria-hidden="true"> ↓</span>}
                  </button>
                </th>
              ))}
              <th scope="col" role="columnheader">Running</th>
            </tr>
          </thead>
          <tbody role="rowgroup">
            {skills.map((figures) => (
              <Row key={figures.id} figures={figures} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

const formatSeconds = (seconds: number | undefined) =>
  seconds === undefined ? "–" : formatDuration(seconds * 1000);

function Row({ figures }: { figures: SkillFigures }) {
  const [isOpen, setOpen] = useState(false);
  const { id, runs, failed, running } = figures;
  const skill = skillsById.value.get(id);
  return (
    <>
      <tr role="row">
        <td role="cell" class="skill-cell">
          <button type="button" class="quiet small" aria-expanded={isOpen} aria-label={`Details of ${id}`} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "▾" : "▸"}
          </button>{" "}
          {skill ? <a class="breakable" href={href("skills", id)}>{skill.name}</a> : <span class="mono breakable">{id}</span>}
        </td>
        <td role="cell" class="bars-cell">
          <Bars counts={figures.perMinute} failed={figures.failedPerMinute} label={`Runs of ${id}`} />
        </td>
        <td role="cell" class="number" data-name="Runs">{runs}</td>
        <td role="cell" class={`number ${failed ? "bad" : ""}`} data-name="Failed">
          {failed > 0 && runs > 0 ? `${failed} (${Math.round((100 * failed) / runs)}\u00a0%)` : failed}
        </td>
        <td role="cell" class="number" data-name="p50">{formatSeconds(figures.p50)}</td>
        <td role="cell" class="number" data-name="p95">{formatSeconds(figures.p95)}</td>
        <td role="cell" class="number" data-name="p99">{formatSeconds(figures.p99)}</td>
        <td role="cell" class="number" data-name="Running">{running}</td>
      </tr>
      {isOpen && (
        <tr role="row" class="details-row">
          <td role="cell" colSpan={8}>
            <Details figures={figures} />
          </td>
        </tr>
      )}
    </>
  );
}

function Details({ figures }: { figures: SkillFigures }) {
  const { id, errors, slowest, failures } = figures;
  return (
    <div class="details-columns">
      <section>
        <h3>Errors</h3>
        {!errors.length && <p class="muted">No errors</p>}
        <ul class="bare">
          {errors.map(([code, count]) => (
            <li key={code}>
              <span class="mono breakable">{code}</span> <span class="number">{count}</span>
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h3>Last failures</h3>
        {!failures.length && <p class="muted">No failures</p>}
        <TaskLinks tasks={failures} />
      </section>
      <section>
        <h3>Slowest</h3>
        <TaskLinks tasks={slowest} />
        <p>
          <a href={`#/tasks?skill=${encodeURIComponent(id.replace(/\p{Surrogate}/gu, "\ufffd"))}`}>Show tasks of this skill</a>
        </p>
      </section>
    </div>
  );
}

const TaskLinks = ({ tasks }: { tasks: NotableTask[] }) => (
  <ul class="bare">
    {tasks.map((task, index) => (
      <li key={index} class="row">
        <a class="mono" href={href("tasks", task.taskId)} title={task.taskId}>
          {shortId(task.taskId)}
        </a>
        {task.seconds !== undefined && <span class="number">{formatSeconds(task.seconds)}</span>}
        {task.state && <StateBadge state={task.state} />}
        {task.code && <span class="mono breakable">{task.code}</span>}
        <span class="muted">
          <When time={task.at} />
        </span>
      </li>
    ))}
  </ul>
);
