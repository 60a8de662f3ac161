import { useMemo, useState } from "preact/hooks";
import { propertiesIn, type Property } from "../form/properties";
import { counted } from "../parts/counted";
import { escapeBidi } from "../parts/JsonTree";
import type { JsonObject } from "../protocol/types";

const FIRST_ROWS = 100;

/** A schema as a table of its members, each followed by its own members. */
export function SchemaTable({ schema, label }: { schema: JsonObject; label: string }) {
  const properties = useMemo(() => propertiesIn(schema), [schema]);
  const [limit, setLimit] = useState(FIRST_ROWS);
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table of ${label.toLowerCase()}`}>
        <table class="schema" role="table">
          <thead role="rowgroup">
            <tr role="row">
              {["Name", "Type", "Required", "Default", "Constraints", "Description"].map((name) => (
                <th key={name} scope="col" role="columnheader">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {properties.slice(0, limit).map((property, index) => (
              <Row key={index} property={property} />
            ))}
          </tbody>
        </table>
      </div>
      {properties.length > limit && (
        <button type="button" class="quiet small" onClick={() => setLimit(limit + 5 * FIRST_ROWS)}>
          Show more ({counted(properties.length - limit, "row")} left)
        </button>
      )}
    </>
  );
}

function Row({ property }: { property: Property }) {
  const { name, depth, type, required, constraints, description } = property;
  return (
    <tr role="row">
      <th scope="row" role="rowheader" style={{ paddingLeft: `${0.7 + depth * 1.2}rem` }}>
        <code class="breakable">{escapeBidi(name)}</code>
      </th>
      <td role="cell" class="breakable">
        {type}
      </td>
      <td role="cell">{required ? "required" : ""}</td>
      <td role="cell">{property.default !== undefined && <code class="breakable">{escapeBidi(property.default)}</code>}</td>
      <td role="cell" class="breakable">
        {constraints.join(", ")}
      </td>
      <td role="cell" class="breakable">
        {description}
      </td>
    </tr>
  );
}
