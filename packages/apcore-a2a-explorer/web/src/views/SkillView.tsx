import { badgesOf, type Skill } from "../protocol/card";
import type { JsonObject } from "../protocol/types";
import { pretty } from "../protocol/values";
import { Boundary } from "../parts/Boundary";
import { JsonTree } from "../parts/JsonTree";
import { LongText } from "../parts/LongText";
import { Markdown } from "../parts/Markdown";
import { Choice } from "../parts/Choice";
import { useState } from "preact/hooks";
import { Badges } from "./Badges";
import { SchemaTable } from "./SchemaTable";
import { TryView } from "./TryView";

export function SkillView({ skill, query }: { skill: Skill; query: URLSearchParams }) {
  return (
    <article class="skill">
      <h1 class="breakable">{skill.name}</h1>
      <p class="mono muted breakable">{skill.id}</p>
      <Badges badges={badgesOf(skill)} />
      {skill.description && <Markdown source={skill.description} />}
      <p class="meta">
        {tagsOf(skill).map((tag) => (
          <span key={tag} class="tag">
            {tag}
          </span>
        ))}
        <span class="muted">
          Input: {skill.inputModes.join(", ") || "any"}; output:{" "}
          {skill.outputModes.join(", ") || "any"}
        </span>
      </p>
      <TryView skill={skill} query={query} />
      <h2>About this skill</h2>
      {skill.documentation && (
        <details open>
          <summary>Documentation</summary>
          <Markdown source={skill.documentation} />
        </details>
      )}
      <Schema title="Input schema" schema={skill.inputSchema} />
      <Schema title="Output schema" schema={skill.outputSchema} />
      <Examples skill={skill} />
      {Object.keys(skill.annotations).length > 0 && (
        <details>
          <summary>Annotations</summary>
          <div class="tree">
            <JsonTree value={skill.annotations} />
          </div>
        </details>
      )}
    </article>
  );
}

/** The skill's tags, without those shown as badges. */
const tagsOf = (skill: Skill) => skill.tags.filter((tag) => skill.annotations[tag.replaceAll("-", "_")] !== true);

function Schema({ title, schema }: { title: string; schema?: JsonObject }) {
  const [kind, setKind] = useState<"Table" | "JSON">("Table");
  if (!schema) return null;
  return (
    <details>
      <summary>{title}</summary>
      <Choice label="Show as" options={["Table", "JSON"]} value={kind} onChange={setKind} />
      {kind === "Table" ? (
        <Boundary instead={() => <LongText text={pretty(schema)} code />}>
          <SchemaTable schema={schema} label={title} />
        </Boundary>
      ) : (
        <LongText text={pretty(schema)} code />
      )}
    </details>
  );
}

function Examples({ skill }: { skill: Skill }) {
  const structuredExamples = skill.examples.filter((example) => example.inputs !== undefined);
  if (!structuredExamples.length) return null;
  return (
    <details>
      <summary>Examples</summary>
      {structuredExamples.map((example, index) => (
        <section key={index}>
          <h3>{example.title}</h3>
          {example.description && <p>{example.description}</p>}
          <LongText text={pretty(example.inputs)} code />
          {example.output !== undefined && (
            <>
              <p class="muted">Output</p>
              <LongText text={pretty(example.output)} code />
            </>
          )}
        </section>
      ))}
    </details>
  );
}
