import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { JsonTree } from "../parts/JsonTree";
import { isTerminal } from "../protocol/states";
import { readTrace, type Span, type Trace } from "../protocol/apcoreRoutes";
import type { TaskState } from "../protocol/types";
import { now } from "../state/clock";
import { formatDuration } from "./times";
import { useApcoreRoute } from "./useApcoreRoute";

const RUNNING_INTERVAL = 4_000; // milliseconds
const ENDED_INTERVAL = 60_000; // milliseconds; notifications may still be delivered

/** The spans of a task on a common time axis; nothing if there are none. */
export function TraceView({ taskId, state }: { taskId: string; state: TaskState }) {
  const interval = isTerminal(state) ? ENDED_INTERVAL : RUNNING_INTERVAL;
  const { data } = useApcoreRoute(`tasks/${encodeURIComponent(taskId)}/trace`, readTrace, interval);
  if (!data?.spans.length) return null;
  return (
    <section aria-labelledby="trace">
      <h2 id="trace">Trace</h2>
      <Waterfall trace={data} />
    </section>
  );
}

function Waterfall({ trace }: { trace: Trace }) {
  const { spans, dropped } = trace;
  const start = Math.min(...spans.map((span) => span.start));
  const knownEnd = Math.max(...spans.map((span) => span.start + (span.seconds ?? 0) * 1000), start + 1);
  const isRunning = spans.some((span) => span.seconds === undefined);
  // leave room for running spans, even if the agent's clock is ahead of the browser's
  const end = isRunning ? Math.max(now.value, knownEnd + (knownEnd - start) / 20) : knownEnd;
  return (
    <>
      <table class="figures-table waterfall" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">Span</th>
            <th scope="col" role="columnheader">Kind</th>
            <th scope="col" role="columnheader">Start</th>
            <th scope="col" role="columnheader">Duration</th>
            <th scope="col" role="columnheader" class="axis-cell">
              <span class="axis">
                <span>0</span>
                <span>
                  {formatDuration((isRunning ? end : knownEnd) - start)}
                  {isRunning && " so far"}
                </span>
              </span>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {spans.map((span, index) => (
            <Row key={index} span={span} start={start} length={end - start} />
          ))}
        </tbody>
      </table>
      {dropped > 0 && (
        <p class="muted">
          {dropped} more {dropped === 1 ? "span was" : "spans were"} not kept.
        </p>
      )}
    </>
  );
}

function Row({ span, start, length }: { span: Span; start: number; length: number }) {
  const [isOpen, setOpen] = useState(false);
  const { name, kind, seconds, status, attributes, depth } = span;
  const hasAttributes = Object.keys(attributes).length > 0;
  const left = (100 * (span.start - start)) / length;
  const width = seconds === undefined ? 100 - left : (seconds * 100_000) / length;
  const durationText = seconds === undefined ? "running" : formatDuration(seconds * 1000);
  return (
    <>
      <tr role="row">
        <td role="cell" class="span-name" style={{ paddingLeft: `${0.7 + Math.min(depth, 8) * 0.9}rem` }}>
          {hasAttributes ? (
            <button type="button" class="quiet small breakable" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              {isOpen ? "▾" : "▸"} <Dotted name={name} />
            </button>
          ) : (
            <span class="breakable">
              <Dotted name={name} />
            </span>
          )}
          {status === "error" && <span class="state danger">error</span>}
        </td>
        <td role="cell" class="kind-cell" title={kind}>{kind}</td>
        <td role="cell" class="number">+{formatDuration(span.start - start)}</td>
        <td role="cell" class="number">{durationText}</td>
        <td role="cell" class="axis-cell" aria-hidden="true">
          <span class="track">
            <span
              class={`span is-${KINDS.has(kind) ? kind : "other"} ${status === "error" ? "is-error" : ""}`}
              style={{ left: `min(${left}%, 100% - 3px)`, width: `max(${width}%, 3px)` }}
            />
          </span>
        </td>
      </tr>
      {isOpen && (
        <tr role="row" class="details-row">
          <td role="cell" colSpan={5}>
            <div class="tree">
              <JsonTree value={attributes} open={1} />
            </div>
          </td>
        </tr>
      )}
    </>
  );
}

/** A name with possible line breaks after its dots. */
const Dotted = ({ name }: { name: string }) => (
  <>
    {name.split(/(?<=\.)/).map((segment, index) => (
      <Fragment key={index}>
        {index > 0 && <wbr />}
        {segment}
      </Fragment>
    ))}
  </>
);

const KINDS = new Set(["queue", "check", "module", "call", "remote", "wait", "webhook"]);
