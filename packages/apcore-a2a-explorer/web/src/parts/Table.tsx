import { useState } from "preact/hooks";
import type { JsonObject } from "../protocol/types";
import { counted } from "./counted";
import { columnsOf } from "./rows";

const INITIAL_LIMIT = 100; // rows

export function Table({ rows, label }: { rows: JsonObject[]; label: string }) {
  const [limit, setLimit] = useState(INITIAL_LIMIT);
  const columns = columnsOf(rows);
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={label}>
        <table>
          <thead>
            <tr>
              {columns.map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map((row, index) => (
              <tr key={index}>
                {columns.map((name) => (
                  <Cell key={name} value={Object.hasOwn(row, name) ? row[name] : undefined} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > limit && (
        <button type="button" class="quiet small" onClick={() => setLimit(limit + 5 * INITIAL_LIMIT)}>
          Show more ({counted(rows.length - limit, "row")} left)
        </button>
      )}
    </>
  );
}

function Cell({ value }: { value: JsonObject[string] | undefined }) {
  const text = value === null || value === undefined ? "" : String(value);
  const isNumber = typeof value === "number" || typeof value === "bigint";
  return <td class={isNumber ? "number" : undefined}>{text.length > 500 ? `${text.slice(0, 500)}…` : text}</td>;
}
