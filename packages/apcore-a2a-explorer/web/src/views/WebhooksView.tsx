import { useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { readWebhooks } from "../protocol/apcoreRoutes";
import { whoami } from "../state/access";
import { Failure } from "./Errors";
import { useApcoreRoute } from "./useApcoreRoute";
import { WebhookList } from "./WebhookList";

const STATES = { All: "all", Active: "active", Failed: "failed" };
type Shown = keyof typeof STATES;
const MAX_WEBHOOKS = 50;

/** The latest webhooks of the tasks that the caller may see. */
export function WebhooksView() {
  const [shown, setShown] = useState<Shown>("All");
  const { data, error, load } = useApcoreRoute(`webhooks?state=${STATES[shown]}&limit=${MAX_WEBHOOKS}`, readWebhooks);
  return (
    <section class="page">
      <h1>Webhooks</h1>
      <p class="muted">
        The latest {MAX_WEBHOOKS} webhooks of {whoami.value?.isOperator ? "all" : "your"} tasks.
      </p>
      <Choice label="State" options={Object.keys(STATES) as Shown[]} value={shown} onChange={setShown} />
      <Failure error={error} />
      {!data && !error && <p class="muted">Loading webhooks…</p>}
      {data?.length === 0 && <p class="empty">{shown === "All" ? "No webhooks" : "No webhooks in this state"}</p>}
      {data && <WebhookList webhooks={data} showsTask reload={load} />}
    </section>
  );
}
