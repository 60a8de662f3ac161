import { useMemo, useState } from "preact/hooks";
import { resolve } from "../form/resolve";
import type { Json, JsonObject, Part } from "../protocol/types";
import { pretty } from "../protocol/values";
import { Boundary } from "./Boundary";
import { Choice } from "./Choice";
import { FilePart } from "./FilePart";
import { Formatted } from "./Formatted";
import { LongText } from "./LongText";
import { shapeOf } from "./shapes";
import { TextView } from "./TextView";
import { Tree } from "./Tree";

interface Props {
  part: Part;
  /** The schema of the part's data, if it is known. */
  schema?: JsonObject;
}

export const PartView = ({ part, schema }: Props) => (
  <Boundary>
    <PartContent part={part} schema={schema} />
  </Boundary>
);

function PartContent({ part, schema }: Props) {
  if (part.text !== undefined) return <TextView part={part} />;
  if (part.data !== undefined) return <DataView data={part.data} schema={schema} />;
  return <FilePart part={part} />;
}

/** Data with a choice of views: formatted (unless the data is plain), a tree, and JSON. */
export function DataView({ data, schema: root = {} }: { data: Json; schema?: JsonObject }) {
  const schema = resolve(root, root);
  const { kind: shape } = useMemo(() => shapeOf(data, schema, root), [data, schema, root]);
  const kinds = [...(shape === "plain" ? [] : [shape === "rows" ? "Table" : "Formatted"]), "Tree", "JSON"];
  const [chosen, setChosen] = useState("");
  const kind = kinds.includes(chosen) ? chosen : kinds[0]!;
  return (
    <>
      <Choice label="Show as" options={kinds} value={kind} onChange={setChosen} />
      {kind === "Tree" && <Tree value={data} />}
      {kind === "JSON" && <LongText text={pretty(data)} code />}
      {kind !== "Tree" && kind !== "JSON" && <Formatted value={data} schema={schema} root={root} label="data" />}
    </>
  );
}
