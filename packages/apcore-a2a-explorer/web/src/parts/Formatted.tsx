import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { labelOf, orderOf, propertiesOf } from "../form/fields";
import { resolve } from "../form/resolve";
import type { Json, JsonObject } from "../protocol/types";
import { counted } from "./counted";
import { FilePart } from "./FilePart";
import { JsonTree, Scalar } from "./JsonTree";
import { memberSchema, shapeOf } from "./shapes";
import { Table } from "./Table";
import { TextView } from "./TextView";

const INITIAL_LIMIT = 20; // items

interface Props {
  value: Json;
  /** The schema of the value, with its references followed; empty if there is none. */
  schema: JsonObject;
  /** The whole schema, with the definitions that references lead to. */
  root: JsonObject;
  label: string;
  depth?: number;
}

/** A value in readable form: its texts, tables and files, and a tree of the rest. */
export function Formatted({ value, schema, root, label, depth = 0 }: Props) {
  const shape = shapeOf(value, schema, root, depth);
  switch (shape.kind) {
    case "text":
      return <TextView part={shape.part} />;
    case "file":
      return (
        <>
          <FilePart part={{ ...shape.part, filename: shape.part.filename ?? label }} />
          {Object.keys(shape.rest).length > 0 && (
            <Members object={shape.rest} schema={schema} root={root} depth={depth} />
          )}
        </>
      );
    case "rows":
      return <Table rows={shape.rows} label={`Table of ${label}`} />;
    case "list":
      return <Items items={shape.items} schema={resolve(schema.items, root)} root={root} label={label} depth={depth} />;
    case "members":
      return <Members object={shape.members} schema={schema} root={root} depth={depth} />;
    default:
      return <Plain value={value} />;
  }
}

const Plain = ({ value }: { value: Json }) => (
  <div class="tree">
    <JsonTree value={value} />
  </div>
);

interface ItemsProps extends Omit<Props, "value" | "depth"> {
  items: Json[];
  depth: number;
}

function Items({ items, schema, root, label, depth }: ItemsProps) {
  const [limit, setLimit] = useState(INITIAL_LIMIT);
  return (
    <>
      <ol class="items">
        {items.slice(0, limit).map((item, index) => (
          <li key={index}>
            <Formatted value={item} schema={schema} root={root} label={`${label} ${index + 1}`} depth={depth + 1} />
          </li>
        ))}
      </ol>
      {items.length > limit && (
        <button type="button" class="quiet small" onClick={() => setLimit(limit + 5 * INITIAL_LIMIT)}>
          Show more ({counted(items.length - limit, "item")} left)
        </button>
      )}
    </>
  );
}

interface MembersProps {
  object: JsonObject;
  schema: JsonObject;
  root: JsonObject;
  depth: number;
}

/** The members of an object in the order of its schema: plain values first, in one list; then the others. */
function Members({ object, schema, root, depth }: MembersProps) {
  const inSchema = orderOf(schema).filter((name) => Object.hasOwn(object, name));
  const names = [...inSchema, ...Object.keys(object).filter((name) => !inSchema.includes(name))];
  const labelledMembers = names.map((name) => {
    const raw = propertiesOf(schema)[name];
    const valueSchema = memberSchema(schema, name, root);
    return { name, valueSchema, value: object[name]!, label: labelOf(name, raw, valueSchema) };
  });
  const isFact = (value: Json, valueSchema: JsonObject) =>
    (value === null || typeof value !== "object") && shapeOf(value, valueSchema, root).kind === "plain";
  const facts = labelledMembers.filter(({ value, valueSchema }) => isFact(value, valueSchema));
  const others = labelledMembers.filter(({ value, valueSchema }) => !isFact(value, valueSchema));
  return (
    <>
      {facts.length > 0 && (
        <dl class="facts members">
          {facts.map(({ name, label, value }) => (
            <Fact key={name} name={label}>
              {typeof value === "string" ? value : <Scalar value={value as null | boolean | number | bigint} />}
            </Fact>
          ))}
        </dl>
      )}
      {others.map(({ name, label, value, valueSchema }) => (
        <section key={name} class="member" aria-label={label}>
          <h4 class="breakable">{label}</h4>
          <Formatted value={value} schema={valueSchema} root={root} label={label} depth={depth + 1} />
        </section>
      ))}
    </>
  );
}

const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <>
    <dt class="breakable">{name}</dt>
    <dd class="breakable">{children}</dd>
  </>
);
