import { log } from "../state/log";
import { DIALECTS } from "../state/settings";
import { CopyView } from "./CopyView";
import { clock, duration } from "./times";

/** The requests that this page has sent to the agent. */
export function Requests() {
  const entries = log.value;
  return (
    <section class="page wide">
      <h1>Requests</h1>
      <p class="muted">The last 100 requests from this page to the agent, newest first.</p>
      {!entries.length && <p class="empty">No requests yet, except for the Agent Card.</p>}
      <ul class="bare">
        {entries.map((entry) => (
          <li key={entry.id} class="card">
            <div class="row">
              <strong class="mono">{DIALECTS[entry.version].request(entry.operation).method}</strong>
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
            <CopyView
              operation={entry.operation}
              lastEventId={entry.lastEventId}
              used={entry.version}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}
