import { Validator, type OutputUnit, type Schema } from "@cfworker/json-schema";
import type { ErrorSchema, RJSFSchema, ValidatorType } from "@rjsf/utils";
import type { FieldError } from "../protocol/errors";
import type { Json, JsonObject } from "../protocol/types";
import { likely, messageOf } from "./errors";

/** What is wrong with *data*, by field; a schema that can't be understood allows everything. */
export function validate(schema: JsonObject, data: Json): FieldError[] {
  const units = unitsOf(schema, data);
  // who is inside an object that is wrong says more than the object
  const told = likely(units.filter((unit) => !CONTAINERS.has(unit.keyword)));
  const found = told.map((unit) => ({ field: fieldOf(unit), message: messageOf(unit, schema) }));
  return [...found, ...inexact(data)];
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

/** Numbers that may not be those that somebody typed. */
function inexact(data: Json, path: string[] = []): FieldError[] {
  if (typeof data === "object" && data !== null) {
    return Object.entries(data).flatMap(([name, item]) => inexact(item, [...path, name]));
  }
  const large = typeof data === "number" && Math.abs(data) > Number.MAX_SAFE_INTEGER;
  const message = "So large a number is not kept to its last digit: is it the one that you mean?";
  return large ? [{ field: path.join("."), message }] : [];
}

/** *errors* where rjsf looks for them; what belongs to no field of *data* goes to the root. */
export function errorSchema(errors: FieldError[]): ErrorSchema {
  const root: Record<string, unknown> = Object.create(null);
  for (const { field, message } of errors) {
    let place = root;
    for (const step of field.split(".").filter(Boolean)) {
      // these lead out of the tree, and to the messages in it
      if (step === "__proto__" || step === "__errors") break;
      place = (place[step] ??= Object.create(null)) as Record<string, unknown>;
    }
    ((place.__errors ??= []) as string[]).push(message);
  }
  return root as ErrorSchema;
}

/** rjsf asks this only which branch of a schema fits; errors are ours. */
export const validator: ValidatorType = {
  validateFormData: () => ({ errors: [], errorSchema: {} }),
  rawValidation: () => ({ errors: [] }),
  isValid(schema, data, root) {
    const { $defs, definitions } = root as RJSFSchema;
    const whole = typeof schema === "boolean" ? schema : { $defs, definitions, ...(schema as object) };
    try {
      return new Validator(whole as Schema, "2020-12").validate(data).valid;
    } catch {
      return true;
    }
  },
};
