import { useState } from "preact/hooks";
import type { Artifact } from "../protocol/types";
import { pretty } from "../protocol/values";
import { counted } from "./counted";
import { download, fileName } from "./files";
import { PartView } from "./PartView";
import { rowsOf } from "./rows";
import { Table } from "./Table";
import { Choice } from "./Choice";

const STEP = 20; // parts

/** An artifact. Parts that are flat data are shown as a table, parts that are texts as one text. */
export function ArtifactView({ artifact }: { artifact: Artifact }) {
  const title = artifact.name || artifact.artifactId || "Artifact";
  return (
    <section class="artifact" aria-label={`Artifact ${title}`}>
      <header>
        <h3 class="breakable">{title}</h3>
        {artifact.parts.length > 1 && <span class="muted">{counted(artifact.parts.length, "part")}</span>}
        {!isFile(artifact) && (
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
      <Parts artifact={artifact} />
    </section>
  );
}

function Parts({ artifact: { parts } }: { artifact: Artifact }) {
  const [shown, setShown] = useState(STEP);
  const [apart, setApart] = useState(false);
  const rows = parts.length > 1 ? rowsOf(parts.map((part) => part.data ?? null)) : null;
  const joined = parts.length > 1 && parts.every((part) => part.text !== undefined);
  if (!parts.length) return <p class="muted">This artifact is empty.</p>;
  return (
    <>
      {(rows || joined) && (
        <Choice
          label="Parts"
          options={["Combined", "Separate"]}
          value={apart ? "Separate" : "Combined"}
          onChange={(value) => setApart(value === "Separate")}
        />
      )}
      {!apart && rows ? (
        <Table rows={rows} label="Parts as a table" />
      ) : !apart && joined ? (
        <PartView part={{ ...parts[0], text: parts.map((part) => part.text).join("") }} />
      ) : (
        <>
          {parts.slice(0, shown).map((part, index) => (
            <PartView key={index} part={part} />
          ))}
          {parts.length > shown && (
            <button type="button" class="quiet small" onClick={() => setShown(shown + 5 * STEP)}>
              Show more ({counted(parts.length - shown, "part")} left)
            </button>
          )}
        </>
      )}
    </>
  );
}

/** Whether it is a single file, which has its own download button. */
const isFile = ({ parts: [first, ...others] }: Artifact) =>
  first?.text === undefined && first?.data === undefined && !others.length;

function save(artifact: Artifact): void {
  const { parts } = artifact;
  const name = fileName({ filename: artifact.name }, "artifact");
  if (parts.every((part) => part.text !== undefined)) {
    return download(parts.map((part) => part.text).join(""), `${name}.txt`, "text/plain");
  }
  const only = parts.length === 1 ? parts[0]!.data : undefined;
  download(pretty(only ?? (parts as never)), `${name}.json`, "application/json");
}
