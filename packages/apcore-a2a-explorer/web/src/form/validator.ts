import { Validator, type OutputUnit, type Schema } from "@cfworker/json-schema";
import type { FieldError } from "../protocol/errors";
import type { Json, JsonObject } from "../protocol/types";
import { LARGEST_INTEGER } from "../protocol/values";
import { messageOf, relevantErrors } from "./errors";

/** Validate *data*; return the errors by field. An invalid schema allows everything. */
export function validate(schema: JsonObject, data: Json): FieldError[] {
  const units = unitsOf(schema, data);
  // errors inside an object say more than the error of the object itself
  const relevant = relevantErrors(units.filter((unit) => !CONTAINERS.has(unit.keyword)));
  const errors = relevant.map((unit) => ({ field: fieldOf(unit), message: messageOf(unit, schema) }));
  return [...errors, ...numberErrors(data)];
}

const CONTAINERS = new Set(["properties", "items", "prefixItems", "$ref", "allOf", "dependentSchemas", "false"]);

function unitsOf(schema: JsonObject, data: Json): OutputUnit[] {
  try {
    return new Validator(schema as Schema, "2020-12", false).validate(data).errors;
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

/** Errors for numbers that may have lost digits since the user typed them. */
function numberErrors(data: Json, path: string[] = []): FieldError[] {
  if (typeof data === "object" && data !== null) {
    return Object.entries(data).flatMap(([name, item]) => numberErrors(item, [...path, name]));
  }
  const large = typeof data === "number" && Math.abs(data) > Number.MAX_SAFE_INTEGER;
  const message = `This number is too large to be sent exactly. ${LARGEST_INTEGER}`;
  return large ? [{ field: path.join("."), message }] : [];
}

/** Whether *value* fits *schema*, which may refer to the definitions of *root*. */
export function fits(schema: JsonObject, value: Json, { $defs, definitions }: JsonObject): boolean {
  const whole = { ...($defs ? { $defs } : {}), ...(definitions ? { definitions } : {}), ...schema };
  try {
    return new Validator(whole as Schema, "2020-12").validate(value).valid;
  } catch {
    return true;
  }
}
