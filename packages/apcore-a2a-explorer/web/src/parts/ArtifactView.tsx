import { useState } from "preact/hooks";
import type { Artifact, JsonObject } from "../protocol/types";
import { pretty } from "../protocol/values";
import { counted } from "./counted";
import { download, fileName } from "./files";
import { PartView } from "./PartView";
import { rowsOf } from "./rows";
import { joinedText } from "./shapes";
import { Table } from "./Table";
import { TextView } from "./TextView";
import { Choice } from "./Choice";

const INITIAL_LIMIT = 20; // parts

interface Props {
  artifact: Artifact;
  /** The schema of the artifact's data, if it is known. */
  schema?: JsonObject;
}

/** An artifact. Parts that are pieces of a text are shown as one text, and flat objects as a table. */
export function ArtifactView({ artifact, schema }: Props) {
  const title = artifact.name || artifact.artifactId || "Artifact";
  return (
    <section class="artifact" aria-label={`Artifact ${title}`}>
      <header>
        <h3 class="breakable">{title}</h3>
        {artifact.parts.length > 1 && <span class="muted">{counted(artifact.parts.length, "part")}</span>}
        {!isEmptyOrFile(artifact) && (
          <button
            type="button"
            class="quiet small"
            aria-label={`Download ${title}`}
            onClick={() => save(artifact)}
          >
            Download
          </button>
        )}
      </header>
      {artifact.description && <p class="hint">{artifact.description}</p>}
      <Parts artifact={artifact} schema={schema} />
    </section>
  );
}

function Parts({ artifact: { parts }, schema }: Props) {
  const [limit, setLimit] = useState(INITIAL_LIMIT);
  const [chosen, setChosen] = useState("");
  const joined = joinedText(parts);
  const rows = parts.length > 1 ? rowsOf(parts.map((part) => part.data ?? null)) : null;
  const kinds = [...(joined === null ? [] : ["Text"]), ...(rows ? ["Table"] : []), "Separate"];
  const kind = kinds.includes(chosen) ? chosen : kinds[0]!;
  if (!parts.length) return <p class="muted">This artifact is empty.</p>;
  return (
    <>
      <Choice label="Parts" options={kinds} value={kind} onChange={setChosen} />
      {kind === "Text" && <TextView part={{ mediaType: parts[0]!.text === undefined ? "" : parts[0]!.mediaType, text: joined! }} />}
      {kind === "Table" && <Table rows={rows!} label="Parts as a table" />}
      {kind === "Separate" && (
        <>
          {parts.slice(0, limit).map((part, index) => (
            <PartView key={index} part={part} schema={schema} />
          ))}
          {parts.length > limit && (
            <button type="button" class="quiet small" onClick={() => setLimit(limit + 5 * INITIAL_LIMIT)}>
              Show more ({counted(parts.length - limit, "part")} left)
            </button>
          )}
        </>
      )}
    </>
  );
}

/** Whether an artifact is empty or a single file. A single file has its own button or link. */
const isEmptyOrFile = ({ parts: [first, ...others] }: Artifact) =>
  first?.text === undefined && first?.data === undefined && !others.length;

function save(artifact: Artifact): void {
  const { parts } = artifact;
  const name = fileName({ filename: artifact.name }, "artifact");
  if (parts.every((part) => part.text !== undefined)) {
    return download(parts.map((part) => part.text).join(""), `${name}.txt`, "text/plain");
  }
  const data = parts.length === 1 ? parts[0]!.data : undefined;
  download(pretty(data ?? (parts as never)), `${name}.json`, "application/json");
}
