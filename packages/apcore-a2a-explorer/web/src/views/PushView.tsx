import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { RpcError } from "../protocol/errors";
import { readWebhooks } from "../protocol/apcoreRoutes";
import type { PushConfig } from "../protocol/types";
import { perform } from "../state/agent";
import { whoami } from "../state/access";
import { credentials } from "../state/credentials";
import { dialect, version } from "../state/settings";
import { CopyView } from "./CopyView";
import { Failure } from "./Errors";
import { useApcoreRoute } from "./useApcoreRoute";
import { WebhookList } from "./WebhookList";

/** Error code: the task does not exist or belongs to another caller. */
const NOT_FOUND = -32001;

/** The deliveries to the webhooks of a task; nothing if the agent reports none. */
function Deliveries({ taskId, title }: { taskId: string; title: ComponentChildren }) {
  const { data, load } = useApcoreRoute(`tasks/${encodeURIComponent(taskId)}/webhooks`, readWebhooks);
  if (!data?.length) return null;
  return (
    <>
      {title}
      <WebhookList webhooks={data} reload={load} />
    </>
  );
}

/** Whether *error* means that the caller, an operator, may not see the push configs of a task. */
const meansHiddenConfigs = (error: unknown) =>
  Boolean(whoami.value?.isOperator) && error instanceof RpcError && error.code === NOT_FOUND;

/** The webhooks of a task. */
export function PushView({ taskId }: { taskId: string }) {
  const [configs, setConfigs] = useState<PushConfig[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [url, setUrl] = useState("");
  const [token, setToken] = useState("");
  const actAndReload = async (action: () => Promise<unknown>) => {
    try {
      await action();
      setConfigs(dialect().pushConfigs(await perform({ name: "listPush", taskId })));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => {
    setConfigs(null);
    void actAndReload(async () => {});
  }, [version.value, credentials.value]);
  if (!configs && meansHiddenConfigs(error)) return <Deliveries taskId={taskId} title={<h2>Webhooks</h2>} />;
  const add = (event: Event) => {
    event.preventDefault();
    void actAndReload(async () => {
      await perform({ name: "setPush", taskId, config: { url, token } });
      setUrl("");
      setToken("");
    });
  };
  return (
    <section aria-labelledby="webhooks">
      <h2 id="webhooks">Webhooks</h2>
      {configs?.length === 0 && <p class="muted">No webhooks for this task.</p>}
      <ul class="bare">
        {configs?.map((config) => (
          <li key={config.id}>
            <span class="mono breakable">{config.url}</span>{" "}
            {config.status && (
              <span class={`badge ${config.status === "failed" ? "danger" : "good"}`}>
                {config.status}
              </span>
            )}{" "}
            {config.reason && <span class="muted">{config.reason} </span>}
            <button
              type="button"
              class="quiet small"
              aria-label={`Remove webhook ${config.url}`}
              onClick={() =>
                void actAndReload(() =>
                  perform({ name: "deletePush", taskId, id: config.id ?? "" }),
                )
              }
            >
              Remove
            </button>
          </li>
        ))}
      </ul>
      {whoami.value && Boolean(configs?.length) && <Deliveries key={configs!.length} taskId={taskId} title={<h3>Deliveries</h3>} />}
      <form class="filters" onSubmit={add}>
        <label>
          URL
          <input
            type="url"
            required
            placeholder="https://…"
            value={url}
            onInput={(event) => setUrl(event.currentTarget.value)}
          />
        </label>
        <label>
          Token
          <input value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button type="submit">Add webhook</button>
      </form>
      <Failure error={error} />
      <CopyView operation={{ name: "setPush", taskId, config: { url: url || "https://hooks.example.com/", token } }} title="Copy request: add webhook" />
    </section>
  );
}
