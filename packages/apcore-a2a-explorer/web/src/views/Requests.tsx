import { useMemo, useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { counted } from "../parts/counted";
import { LongText } from "../parts/LongText";
import { checkRequest, checkResponse } from "../protocol/conformance";
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

interface Mismatches {
  request: string[];
  response: string[];
}

/** What the protocol's definition does not allow in an entry; null if it does not say. */
function mismatchesIn({ wire, version, operation, took }: LogEntry): Mismatches | null {
  // requests of HTTP+JSON have a path
  if (took === undefined || wire.isCut || !wire.request.startsWith("POST\n")) return null;
  const { method } = DIALECTS[version].request(operation);
  const request = checkRequest(version, method, wire.body);
  const body = wire.pieces.map(({ text }) => text).join("");
  // other responses, such as those of a proxy, are not JSON-RPC
  const response = body ? checkResponse(version, method, body, isStream(wire)) : [];
  return request && response && { request, response };
}

const isStream = (wire: Wire) => wire.head.includes("text/event-stream");

function Entry({ entry }: { entry: LogEntry }) {
  const mismatches = useMemo(() => mismatchesIn(entry), [entry]);
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
        <Conformance entry={entry} mismatches={mismatches} />
        {entry.error && <span class="badge danger breakable">{entry.error}</span>}
      </div>
      <WireView entry={entry} mismatches={mismatches} />
      <CopyView operation={entry.operation} lastEventId={entry.lastEventId} used={entry.version} />
    </li>
  );
}

function Conformance({ entry, mismatches }: { entry: LogEntry; mismatches: Mismatches | null }) {
  if (!mismatches) return null;
  const count = mismatches.request.length + mismatches.response.length;
  return count ? (
    <span class="badge warning">{count === 1 ? "1 mismatch" : `${count} mismatches`}</span>
  ) : (
    <span class="badge plain">valid A2A {entry.version}</span>
  );
}

type Side = "Response" | "Request";

/** What was sent and received, byte by byte but for the credentials. */
function WireView({ entry, mismatches }: { entry: LogEntry; mismatches: Mismatches | null }) {
  const [opened, setOpened] = useState(false);
  const [side, setSide] = useState<Side>("Response");
  const { wire } = entry;
  return (
    <details class="wire" onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>Request and response</summary>
      {opened && (
        <>
          <Choice label="Show" options={["Response", "Request"]} value={side} onChange={setSide} />
          <MismatchList errors={(side === "Request" ? mismatches?.request : mismatches?.response) ?? []} version={entry.version} />
          {side === "Request" ? <LongText text={`${wire.request}\n\n${indented(wire.body)}`} code /> : <Response wire={wire} start={entry.at} />}
          {wire.isCut && <p class="muted">Too large: a part is not kept.</p>}
        </>
      )}
    </details>
  );
}

function MismatchList({ errors, version }: { errors: string[]; version: string }) {
  if (!errors.length) return null;
  return (
    <div class="failure">
      <strong>Not as A2A {version} defines it:</strong>
      <ul class="errors">
        {errors.map((error) => (
          <li key={error} class="breakable">
            {error}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Response({ wire, start }: { wire: Wire; start: number }) {
  if (!wire.head && !wire.pieces.length) return <p class="muted">No response.</p>;
  const streams = isStream(wire);
  const pieces = wire.pieces.map(({ at, text }) =>
    streams ? `# +${duration(at - start)}\n${text}` : indented(text),
  );
  return (
    <>
      <LongText text={wire.head} code />
      {streams && <p class="muted">{counted(wire.pieces.length, "piece")} of the stream, as they arrived</p>}
      <LongText text={pieces.join("\n")} code />
    </>
  );
}
