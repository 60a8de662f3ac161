import { useState } from "preact/hooks";
import { LongText } from "../parts/LongText";
import { Markdown } from "../parts/Markdown";
import type { Example, Skill } from "../protocol/card";
import { asPython } from "../protocol/copy";
import { isObject } from "../protocol/values";
import { card, target } from "../state/agent";
import { health, loadHealth } from "../state/health";
import { href } from "../state/route";
import { operationOf } from "../state/runs";
import { dialect, version } from "../state/settings";
import { inbox, inboxHasMore } from "../state/tasks";
import { AgentFacts } from "./AgentFacts";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { SkillList } from "./SkillList";
import { usePoll } from "./usePoll";

const HEALTH_INTERVAL = 15_000; // milliseconds

/** The start page: the agent's description, next steps, skills and facts. */
export function Landing() {
  const agent = card.value!;
  return (
    <article class="page landing">
      <header class="hero">
        <div class="row">
          <h1 class="breakable">{agent.name}</h1>
          {agent.version && <span class="tag breakable">{agent.version}</span>}
          <Status />
        </div>
        {agent.description && <Markdown source={agent.description} />}
      </header>
      <NextSteps skills={agent.skills} />
      <div class="columns">
        <section aria-labelledby="skills">
          <h2 id="skills">Skills</h2>
          <SkillList asCards />
        </section>
        <aside aria-labelledby="about">
          <h2 id="about">About this agent</h2>
          <AgentFacts />
        </aside>
      </div>
    </article>
  );
}

function Status() {
  usePoll(loadHealth, HEALTH_INTERVAL);
  if (!health.value) return null;
  const { tone, label } = health.value;
  return (
    <span role="status" class={`state ${tone}`}>
      {label}
    </span>
  );
}

function NextSteps({ skills }: { skills: Skill[] }) {
  const [isCodeShown, setCodeShown] = useState(false);
  const first = firstExample(skills);
  const waitingCount = inbox.value?.length;
  return (
    <section aria-label="Next steps">
      <ul class="tiles">
        {first && (
          <li>
            <a href={addressOf(first)}>
              <Icon name="now" />
              <strong>Run an example</strong>
              <span class="muted breakable">{first.skill.name}</span>
            </a>
          </li>
        )}
        <li>
          <button type="button" aria-expanded={isCodeShown} onClick={() => setCodeShown(!isCodeShown)}>
            <Icon name="requests" />
            <strong>Connect from Python</strong>
            <span class="muted">A client in a few lines</span>
          </button>
        </li>
        <li>
          <a href="#/inbox">
            <Icon name="inbox" />
            <strong>Waiting for your input{waitingCount !== undefined && `: ${waitingCount}${inboxHasMore.value ? "+" : ""}`}</strong>
            <span class="muted">Approvals and questions</span>
          </a>
        </li>
      </ul>
      {isCodeShown && <ConnectionCode first={first} />}
    </section>
  );
}

interface FirstExample {
  skill: Skill;
  example: Example;
}

/**
 * An example to begin with, of a read-only skill if possible. Examples of skills that are destructive
 * or need approval are left out.
 */
function firstExample(skills: Skill[]): FirstExample | undefined {
  const all = skills.flatMap((skill) => skill.examples.map((example) => ({ skill, example })));
  const structuredExamples = all.filter(({ example }) => isObject(example.inputs));
  const harmless = structuredExamples.filter(
    ({ skill: { annotations } }) => annotations.destructive !== true && annotations.requires_approval !== true,
  );
  return harmless.find(({ skill }) => skill.annotations.readonly === true) ?? harmless[0];
}

/** The address of the skill's view; opening it fills in the example. */
const addressOf = ({ skill, example }: FirstExample) =>
  `${href("skills", skill.id)}?input=${encodeURIComponent(JSON.stringify(example.inputs))}`;

function ConnectionCode({ first }: { first: FirstExample | undefined }) {
  const operation = first
    ? operationOf("send", [{ data: first.example.inputs }], { skillId: first.skill.id })
    : { name: "list" as const, query: {} };
  const source = `# pip install apcore-a2a-client\n${asPython(dialect(), operation, target(version.value))}`;
  return (
    <div class="card" role="region" aria-label="Connect from Python">
      <LongText text={source} code />
      <CopyButton text={source} label="Copy code" />
    </div>
  );
}
