import { useMemo, useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { counted } from "../parts/counted";
import { LongText } from "../parts/LongText";
import { checkCard, checkRequest, checkResponse, versionsOfCard, type Findings } from "../protocol/conformance";
import { indented, log, type LogEntry, type Wire } from "../state/log";
import { object } from "../protocol/values";
import { DIALECTS } from "../state/settings";
import { CopyView } from "./CopyView";
import { clockTime, formatDuration } from "./times";

/** The latest A2A requests of this page, with the responses. */
export function Requests() {
  const entries = log.value;
  return (
    <section class="page">
      <h1>Requests</h1>
      <p class="muted">
        The last 100 A2A requests from this page to the agent, newest first. Polls for task changes
        are left out.
      </p>
      {!entries.some((entry) => entry.operation) && (
        <p class="empty">No requests yet, except the one for the Agent Card.</p>
      )}
      <ul class="bare">
        {entries.map((entry) => (
          <Entry key={entry.id} entry={entry} />
        ))}
      </ul>
    </section>
  );
}

interface Check {
  request: Findings;
  response: Findings;
  /** The versions of A2A that the request and the response were checked against. */
  versions: string;
}

const NO_FINDINGS: Findings = { errors: [], unknown: [] };

/** Check an entry against the protocol's definition; return null if it cannot be checked. */
function checkEntry(entry: LogEntry): Check | null {
  const { wire, version, operation, took } = entry;
  const body = wire.pieces.map(({ text }) => text).join("");
  if (took === undefined || wire.isCut) return null;
  if (!operation) return body ? checkCardBody(body) : null;
  if (!wire.request.startsWith("POST\n")) return null; // HTTP+JSON: a path follows the method
  const { method } = DIALECTS[version].request(operation);
  const request = checkRequest(version, method, wire.body);
  const response = body ? checkResponse(version, method, body, isStream(wire)) : NO_FINDINGS;
  return request && response && { request, response, versions: version };
}

function checkCardBody(body: string): Check {
  let source: unknown;
  try {
    source = JSON.parse(body);
  } catch {
    source = undefined;
  }
  const versions = versionsOfCard(object(source) ?? {}).join(" and ");
  return { request: NO_FINDINGS, response: checkCard(source), versions };
}

const isStream = (wire: Wire) => wire.head.includes("text/event-stream");

function Entry({ entry }: { entry: LogEntry }) {
  const check = useMemo(() => checkEntry(entry), [entry]);
  const { operation, version } = entry;
  return (
    <li class="card">
      <div class="row">
        <strong class="mono">
          {operation ? DIALECTS[version].request(operation).method : "GET /.well-known/agent-card.json"}
        </strong>
        {entry.status !== undefined && (
          <span class={`badge ${entry.status < 400 ? "good" : "danger"}`}>{entry.status}</span>
        )}
        <span class="muted">
          {operation && `A2A ${version}, `}
          {clockTime(entry.at)}
        </span>
        {entry.took === undefined ? (
          <span class="badge busy">pending</span>
        ) : (
          <span class="muted number">{formatDuration(entry.took)}</span>
        )}
        <Conformance check={check} />
        {entry.error && <span class="badge danger breakable">{entry.error}</span>}
      </div>
      <WireView entry={entry} check={check} />
      {operation && <CopyView operation={operation} lastEventId={entry.lastEventId} initialVersion={version} />}
    </li>
  );
}

function Conformance({ check }: { check: Check | null }) {
  if (!check) return null;
  const { request, response, versions } = check;
  const mismatches = request.errors.length + response.errors.length;
  const unknown = request.unknown.length + response.unknown.length;
  return (
    <>
      {mismatches > 0 && <span class="badge warning">{mismatches === 1 ? "1 mismatch" : `${mismatches} mismatches`}</span>}
      {mismatches === 0 && <span class="badge plain">valid A2A {versions}</span>}
      {unknown > 0 && <span class="badge warning">{counted(unknown, "unknown member")}</span>}
    </>
  );
}

type Side = "Response" | "Request";

/** The request and the response, with indented JSON and without the credentials. */
function WireView({ entry, check }: { entry: LogEntry; check: Check | null }) {
  const [isOpen, setOpen] = useState(false);
  const [side, setSide] = useState<Side>("Response");
  const { wire } = entry;
  return (
    <details class="wire" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Request and response</summary>
      {isOpen && (
        <>
          <Choice label="Show" options={["Response", "Request"]} value={side} onChange={setSide} />
          {check && (
            <FindingList findings={side === "Request" ? check.request : check.response} versions={check.versions} />
          )}
          {side === "Request" ? <LongText text={`${wire.request}\n\n${indented(wire.body)}`} code /> : <Response wire={wire} start={entry.at} />}
          {wire.isCut && <p class="muted">Only a part was kept, because the log has a size limit.</p>}
        </>
      )}
    </details>
  );
}

function FindingList({ findings: { errors, unknown }, versions }: { findings: Findings; versions: string }) {
  return (
    <>
      {errors.length > 0 && (
        <div class="failure">
          <strong>Not valid A2A {versions}:</strong>
          <PathList paths={errors} />
        </div>
      )}
      {unknown.length > 0 && (
        <div class="notice unknown">
          <strong>Members that A2A {versions} does not define (receivers ignore them):</strong>
          <PathList paths={unknown} />
        </div>
      )}
    </>
  );
}

const PathList = ({ paths }: { paths: string[] }) => (
  <ul class="errors">
    {paths.map((path, index) => (
      <li key={index} class="breakable">
        {path}
      </li>
    ))}
  </ul>
);

function Response({ wire, start }: { wire: Wire; start: number }) {
  if (!wire.head && !wire.pieces.length) return <p class="muted">No response.</p>;
  const streams = isStream(wire);
  const pieces = wire.pieces.map(({ at, text }) =>
    streams ? `# +${formatDuration(at - start)}\n${text}` : indented(text),
  );
  return (
    <>
      <LongText text={wire.head} code />
      {streams && <p class="muted">{counted(wire.pieces.length, "piece")} of the stream, each preceded by its arrival time</p>}
      <LongText text={pieces.join("\n")} code />
    </>
  );
}
