import { useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { counted } from "../parts/counted";
import { LongText } from "../parts/LongText";
import { indented, log, type LogEntry, type Wire } from "../state/log";
import { DIALECTS } from "../state/settings";
import { CopyView } from "./CopyView";
import { clock, duration } from "./times";

/** The requests that this page has sent to the agent, with the responses. */
export function Requests() {
  const entries = log.value;
  return (
    <section class="page wide">
      <h1>Requests</h1>
      <p class="muted">
        The last 100 requests from this page to the agent, newest first, without the polls for
        changes of tasks.
      </p>
      {!entries.length && <p class="empty">No requests yet, except for the Agent Card.</p>}
      <ul class="bare">
        {entries.map((entry) => (
          <Entry key={entry.id} entry={entry} />
        ))}
      </ul>
    </section>
  );
}

function Entry({ entry }: { entry: LogEntry }) {
  return (
    <li class="card">
      <div class="row">
        <strong class="mono">{DIALECTS[entry.version].request(entry.operation).method}</strong>
        {entry.status !== undefined && (
          <span class={`badge ${entry.status < 400 ? "good" : "danger"}`}>{entry.status}</span>
        )}
        <span class="muted">
          A2A {entry.version}, {clock(entry.at)}
        </span>
        {entry.took === undefined ? (
          <span class="badge busy">pending</span>
        ) : (
          <span class="muted number">{duration(entry.took)}</span>
        )}
        {entry.error && <span class="badge danger breakable">{entry.error}</span>}
      </div>
      <WireView entry={entry} />
      <CopyView operation={entry.operation} lastEventId={entry.lastEventId} used={entry.version} />
    </li>
  );
}

type Side = "Response" | "Request";

/** What was sent and received, byte by byte but for the credentials. */
function WireView({ entry }: { entry: LogEntry }) {
  const [opened, setOpened] = useState(false);
  const [side, setSide] = useState<Side>("Response");
  const { wire } = entry;
  return (
    <details class="wire" onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>Request and response</summary>
      {opened && (
        <>
          <Choice label="Show" options={["Response", "Request"]} value={side} onChange={setSide} />
          {side === "Request" ? <LongText text={wire.request} code /> : <Response wire={wire} start={entry.at} />}
          {wire.isCut && <p class="muted">Too large: a part is not kept.</p>}
        </>
      )}
    </details>
  );
}

function Response({ wire, start }: { wire: Wire; start: number }) {
  if (!wire.head && !wire.pieces.length) return <p class="muted">No response.</p>;
  const isStream = wire.head.includes("text/event-stream");
  const pieces = wire.pieces.map(({ at, text }) =>
    isStream ? `# +${duration(at - start)}\n${text}` : indented(text),
  );
  return (
    <>
      <LongText text={wire.head} code />
      {isStream && <p class="muted">{counted(wire.pieces.length, "piece")} of the stream, as they arrived</p>}
      <LongText text={pieces.join("\n")} code />
    </>
  );
}
