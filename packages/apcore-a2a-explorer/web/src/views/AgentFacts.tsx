import { base, card, isExtended } from "../state/agent";
import { JsonTree } from "../parts/JsonTree";
import { Link } from "../parts/Link";

/** The part of the card that describes the agent itself. */
export function AgentFacts() {
  const agent = card.value!;
  const { streaming, push, extendedCard } = agent.capabilities;
  const capabilities = [
    ["streaming", streaming],
    ["push notifications", push],
    ["extended card", extendedCard],
  ] as const;
  return (
    <>
      <dl class="facts">
        <dt>Version</dt>
        <dd>{agent.version || "not specified"}</dd>
        <dt>URL</dt>
        <dd class="mono breakable">{base}</dd>
        {agent.provider && (
          <>
            <dt>Provider</dt>
            <dd>
              <Link url={agent.provider.url}>{agent.provider.organization}</Link>
            </dd>
          </>
        )}
        {agent.documentationUrl && (
          <>
            <dt>Documentation</dt>
            <dd>
              <Link url={agent.documentationUrl} />
            </dd>
          </>
        )}
        <dt>Interfaces</dt>
        <dd>
          <ul class="bare">
            {agent.interfaces.map((agentInterface) => (
              <li key={`${agentInterface.binding} ${agentInterface.version}`}>
                {agentInterface.binding} {agentInterface.version}{" "}
                {agentInterface.url !== base && <span class="muted mono breakable">{agentInterface.url}</span>}
              </li>
            ))}
          </ul>
        </dd>
        <dt>Capabilities</dt>
        <dd>
          {capabilities.map(([name, isSupported]) => (
            <span key={name} class={`badge ${isSupported ? "good" : "plain"}`}>
              {isSupported ? name : `no ${name}`}
            </span>
          ))}
        </dd>
        <dt>Media types</dt>
        <dd>
          Input: {agent.inputModes.join(", ") || "any"}; output:{" "}
          {agent.outputModes.join(", ") || "any"}
        </dd>
        <dt>Authentication</dt>
        <dd>
          <Security />
        </dd>
        <dt>Extensions</dt>
        <dd>
          {agent.extensions.length ? (
            <ul class="bare">
              {agent.extensions.map((extension) => (
                <li key={extension.uri}>
                  <span class="mono breakable">{extension.uri}</span>
                  {extension.required && <span class="badge warning">required</span>}
                  {extension.description && <div class="muted">{extension.description}</div>}
                </li>
              ))}
            </ul>
          ) : (
            "None"
          )}
        </dd>
      </dl>
      {isExtended.value && <p class="muted">This is the extended Agent Card for your credentials.</p>}
      <details>
        <summary>Agent Card as JSON</summary>
        <div class="tree">
          <JsonTree value={agent.source} open={1} />
        </div>
      </details>
    </>
  );
}

function Security() {
  const { schemes, security } = card.value!;
  if (!schemes.length) return <>Not required: the Agent Card declares no security schemes.</>;
  const isRequired = (name: string) => security.length > 0 && security.every((names) => names.includes(name));
  const hasChoice = security.length > 1 && security.every((names) => names.length);
  return (
    <>
      <ul class="bare">
        {schemes.map((scheme) => (
          <li key={scheme.name}>
            <span class="mono">{scheme.name}</span>: {scheme.hint}{" "}
            {isRequired(scheme.name) && <span class="badge warning">required</span>}
            {scheme.description && <div class="muted">{scheme.description}</div>}
          </li>
        ))}
      </ul>
      {hasChoice && (
        <div class="muted">Required: {security.map((names) => names.join(" and ")).join(", or ")}.</div>
      )}
    </>
  );
}
