import { Validator, type OutputUnit, type Schema } from "@cfworker/json-schema";
import type { FieldError } from "../protocol/errors";
import type { Json, JsonObject } from "../protocol/types";
import { withNumbers } from "../protocol/json";
import { messageOf, relevantErrors } from "./errors";

/** Validate *data*; return the errors and their fields. An invalid schema allows everything. */
export function validate(schema: JsonObject, data: Json): FieldError[] {
  const units = unitsOf(schema, data);
  // errors inside an object are more specific than the error of the object itself
  const specific = relevantErrors(units.filter((unit) => !UNSPECIFIC_KEYWORDS.has(unit.keyword)));
  // an error of the subschema `false` does not say where the subschema is, so it counts only without other errors
  const relevant = specific.length ? specific : units.filter((unit) => unit.keyword === "false");
  return relevant.map((unit) => ({ field: fieldOf(unit), message: messageOf(unit, schema) }));
}

const UNSPECIFIC_KEYWORDS = new Set(["properties", "items", "prefixItems", "$ref", "allOf", "dependentSchemas", "false"]);

function unitsOf(schema: JsonObject, data: Json): OutputUnit[] {
  try {
    return new Validator(withNumbers(schema) as Schema, "2020-12", false).validate(withNumbers(data)).errors;
  } catch {
    return [];
  }
}

function fieldOf(unit: OutputUnit): string {
  const path = unit.instanceLocation
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .map((step) => decodeURIComponent(step.replaceAll("~1", "/").replaceAll("~0", "~")));
  const missing = /required property "(.*)"/.exec(unit.error)?.[1];
  if (unit.keyword === "required" && missing) path.push(missing);
  const unexpected = /^Property "(.*)" does not match additional/.exec(unit.error)?.[1];
  if (unit.keyword === "additionalProperties" && unexpected) path.push(unexpected);
  return path.join(".");
}

/** Whether *value* fits *schema*, which may refer to the definitions of *root*. */
export function fits(schema: JsonObject, value: Json, root: JsonObject): boolean {
  const { $defs, definitions } = root;
  const schemaWithDefinitions = { ...($defs ? { $defs } : {}), ...(definitions ? { definitions } : {}), ...schema };
  try {
    return new Validator(withNumbers(schemaWithDefinitions) as Schema, "2020-12").validate(withNumbers(value)).valid;
  } catch {
    return true;
  }
}
