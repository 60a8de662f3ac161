import type { Json, JsonObject } from "../protocol/types";
import { isObject } from "../protocol/values";

const isScalar = (value: Json) => value === null || typeof value !== "object";
const MAX_COLUMNS = 30;

/** The rows of a table if *value* is an array of flat objects, else null. */
export function rowsOf(value: Json | undefined): JsonObject[] | null {
  if (!Array.isArray(value) || !value.length) return null;
  return value.every((row) => isObject(row) && Object.values(row).every(isScalar))
    ? (value as JsonObject[])
    : null;
}

export function columnsOf(rows: JsonObject[]): string[] {
  const columns = new Set<string>();
  for (const row of rows.slice(0, 1000)) for (const name of Object.keys(row)) columns.add(name);
  return [...columns].slice(0, MAX_COLUMNS);
}
