import { useState } from "preact/hooks";
import type { Json, Part } from "../protocol/types";
import { pretty } from "../protocol/values";
import { Boundary } from "./Boundary";
import { FilePart } from "./FilePart";
import { JsonTree } from "./JsonTree";
import { LongText } from "./LongText";
import { Markdown } from "./Markdown";
import { rowsOf } from "./rows";
import { Table } from "./Table";
import { Choice } from "./Choice";

const MARKDOWN = /(^|\n)(#{1,6} |[-*] |\d+\. |```|> |\|.*\|)|\*\*|`[^`]+`|\[[^\]]+\]\(/;
const MAX_MARKDOWN = 200_000; // characters

export const PartView = ({ part }: { part: Part }) => (
  <Boundary>
    <PartContent part={part} />
  </Boundary>
);

function PartContent({ part }: { part: Part }) {
  if (part.text !== undefined) return <TextPart part={part} text={part.text} />;
  if (part.data !== undefined) return <DataPart data={part.data} />;
  return <FilePart part={part} />;
}

function TextPart({ part, text }: { part: Part; text: string }) {
  const declared = /markdown/.test(part.mediaType ?? "");
  const mayBeMarkdown = text.length < MAX_MARKDOWN && (declared || MARKDOWN.test(text));
  const [rich, setRich] = useState(declared);
  if (!mayBeMarkdown) return <LongText text={text} />;
  return (
    <>
      <Choice
        label="Show as"
        options={["Text", "Markdown"]}
        value={rich ? "Markdown" : "Text"}
        onChange={(value) => setRich(value === "Markdown")}
      />
      {rich ? <Markdown source={text} /> : <LongText text={text} />}
    </>
  );
}

export function DataPart({ data }: { data: Json }) {
  const table = tableOf(data);
  const kinds = [...(table ? ["Table"] : []), "Tree", "JSON"];
  const [chosen, setKind] = useState("");
  const kind = kinds.includes(chosen) ? chosen : kinds[0]!;
  return (
    <>
      <Choice label="Show as" options={kinds} value={kind} onChange={setKind} />
      {kind === "Table" && table && <Table rows={table} label="Table" />}
      {kind === "Tree" && (
        <div class="tree">
          <JsonTree value={data} />
        </div>
      )}
      {kind === "JSON" && <LongText text={pretty(data)} code />}
    </>
  );
}

/** The rows in *data*, if it is an array of flat objects or an object with only such an array. */
function tableOf(data: Json) {
  if (Array.isArray(data)) return rowsOf(data);
  const values = data && typeof data === "object" ? Object.values(data) : [];
  return values.length === 1 ? rowsOf(values[0]) : null;
}
