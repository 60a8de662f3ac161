import { useEffect, useRef, useState } from "preact/hooks";
import { pretty } from "../protocol/values";
import type { Json, Part, StreamEvent } from "../protocol/types";
import { counted } from "../parts/counted";
import { LongText } from "../parts/LongText";
import type { Run, TimedEvent } from "../state/run";
import { clockTime, formatDuration } from "./times";

const ROW_HEIGHT = 30; // pixels
const MAX_HEIGHT = 300; // pixels
const OVERSCAN = 5; // rows rendered above and below the visible ones

/** All events of a run; only the visible rows are rendered. */
export function Timeline({ run, count }: { run: Run; count: number }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [chosen, setChosen] = useState(-1);
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [count]);
  const followScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current!;
    isAtEnd.current = scrollTop + clientHeight >= scrollHeight - ROW_HEIGHT;
    setTop(scrollTop);
  };
  const choose = (index: number) => {
    const to = Math.min(Math.max(index, 0), count - 1);
    setChosen(to);
    const { scrollTop, clientHeight } = box.current!;
    if (to * ROW_HEIGHT < scrollTop) box.current!.scrollTop = to * ROW_HEIGHT;
    if ((to + 1) * ROW_HEIGHT > scrollTop + clientHeight) box.current!.scrollTop = (to + 1) * ROW_HEIGHT - clientHeight;
  };
  const moveByKey = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(chosen < 0 && Number.isFinite(step) ? count - 1 : chosen + step);
  };
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
  const end = Math.min(count, first + Math.ceil(MAX_HEIGHT / ROW_HEIGHT) + 2 * OVERSCAN);
  const start = run.events[0]!.at;
  return (
    <details class="timeline" open>
      <summary>Timeline, {counted(count, "event")}</summary>
      <div
        ref={box}
        class="events"
        style={{ height: `${Math.min(count * ROW_HEIGHT + 2, MAX_HEIGHT)}px` }}
        role="listbox"
        aria-label="Events"
        aria-activedescendant={chosen >= first && chosen < end ? `event-${run.startedAt}-${chosen}` : undefined}
        tabIndex={0}
        onScroll={followScroll}
        onKeyDown={moveByKey}
      >
        <div class="spacer" style={{ height: `${count * ROW_HEIGHT}px` }}>
          {run.events.slice(first, end).map((timed, offset) => (
            <Row
              key={first + offset}
              id={`event-${run.startedAt}-${first + offset}`}
              timed={timed}
              index={first + offset}
              start={start}
              isChosen={first + offset === chosen}
              choose={choose}
            />
          ))}
        </div>
      </div>
      {run.events[chosen] && (
        <section aria-label="Event details">
          <LongText text={pretty(run.events[chosen].wire as Json)} code />
        </section>
      )}
    </details>
  );
}

const STEPS: Record<string, number> = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: 10,
  PageUp: -10,
  Home: -Infinity,
  End: Infinity,
};

interface RowProps {
  id: string;
  timed: TimedEvent;
  index: number;
  start: number | undefined;
  isChosen: boolean;
  choose: (index: number) => void;
}

function Row({ id, timed, index, start, isChosen, choose }: RowProps) {
  const { event } = timed;
  return (
    <div
      id={id}
      role="option"
      aria-selected={isChosen}
      class={`event is-${event.kind}`}
      style={{ top: `${index * ROW_HEIGHT}px` }}
      onClick={() => choose(index)}
    >
      <span class="mono number">{clockTime(timed.at)}</span>
      <span class="muted number">{offsetText(timed, start)}</span>
      <span class="kind">{kindOf(event)}</span>
      <span class="event-summary">{summaryOf(event)}</span>
    </div>
  );
}

const offsetText = ({ at }: TimedEvent, start: number | undefined) =>
  at === undefined || start === undefined ? "" : `+${formatDuration(at - start)}`;

function kindOf(event: StreamEvent): string {
  if (event.kind !== "artifact") return event.kind;
  return event.append ? "chunk" : "artifact";
}

function summaryOf(event: StreamEvent): string {
  if (event.kind === "task") return event.task.status.state;
  if (event.kind === "message") return event.message.parts.map(previewOf).join(" ");
  if (event.kind === "artifact") return event.artifact.parts.map(previewOf).join(" ");
  const message = event.status.message?.parts.map(previewOf).join(" ") ?? "";
  return [event.status.state, message].filter(Boolean).join(": ");
}

function previewOf(part: Part): string {
  if (part.text !== undefined) return part.text.slice(0, 200);
  if (part.raw !== undefined || part.url !== undefined) return part.filename || "file";
  const size = part.data !== null && typeof part.data === "object" ? Object.keys(part.data).length : 0;
  // do not serialize large values only to truncate them
  if (size > 20) return `${size} ${Array.isArray(part.data) ? "items" : "properties"}`;
  const json = JSON.stringify(part.data, (_, value) => {
    if (typeof value === "bigint") return String(value);
    return typeof value === "string" && value.length > 80 ? `${value.slice(0, 80)}…` : value;
  });
  return (json ?? "").slice(0, 200);
}
