import type { Json, JsonObject } from "../protocol/types";
import { isObject, strings } from "../protocol/values";

const MAX_LEVELS = 32; // of references and allOf
const MAX_ALL_OF = 32; // schemas of one allOf

const resolved = new WeakMap<JsonObject, JsonObject>();

/**
 * The schema with its references followed, `allOf` merged, and null removed from its types and
 * branches; if null was removed, the result has `nullable`. A schema that is not an object becomes
 * `{}`, which allows any value.
 */
export function resolve(schema: Json | undefined, root: JsonObject): JsonObject {
  if (!isObject(schema)) return {};
  const cached = resolved.get(schema);
  if (cached) return cached;
  resolved.set(schema, {}); // ends the recursion of a schema that refers only to itself
  const result = withoutNull(merge(schema, root, MAX_LEVELS), root);
  resolved.set(schema, result);
  return result;
}

function merge(schema: Json | undefined, root: JsonObject, levels: number): JsonObject {
  if (!isObject(schema) || !levels) return {};
  const { $ref, allOf, ...own } = schema;
  const parts = [
    ...(typeof $ref === "string" ? [merge(valueAt(root, $ref), root, levels - 1)] : []),
    ...(Array.isArray(allOf) ? allOf.slice(0, MAX_ALL_OF).map((part) => merge(part, root, levels - 1)) : []),
  ];
  return parts.length ? combine([...parts, own]) : own;
}

/** All *schemas* as one: later keywords win, but properties and required names are merged. */
export function combine(schemas: JsonObject[]): JsonObject {
  return schemas.reduce((all, schema) => {
    const result = { ...all, ...schema };
    if (isObject(all.properties) && isObject(schema.properties)) {
      result.properties = { ...all.properties, ...schema.properties };
    }
    if (all.required && schema.required) {
      result.required = [...new Set([...strings(all.required), ...strings(schema.required)])];
    }
    return result;
  }, {});
}

/** The value at a JSON pointer such as `#/$defs/Order`; undefined if it is in another document. */
function valueAt(root: JsonObject, pointer: string): Json | undefined {
  if (!/^#(\/|$)/.test(pointer)) return undefined;
  return steps(pointer.slice(1)).reduce<Json | undefined>(
    (value, step) => (value instanceof Object && Object.hasOwn(value, step) ? (value as JsonObject)[step] : undefined),
    root,
  );
}

function steps(pointer: string): string[] {
  const decoded = pointer.split("/").slice(1);
  return decoded.map((step) => safeDecode(step).replaceAll("~1", "/").replaceAll("~0", "~"));
}

function safeDecode(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

const withoutNull = (schema: JsonObject, root: JsonObject) =>
  withoutNullType(withoutNullChoice("oneOf", withoutNullChoice("anyOf", schema, root), root));

function withoutNullChoice(keyword: "anyOf" | "oneOf", schema: JsonObject, root: JsonObject): JsonObject {
  const choices = schema[keyword];
  if (!Array.isArray(choices)) return schema;
  const others = choices.filter((choice) => !(isObject(choice) && (choice.type === "null" || choice.const === null)));
  const { [keyword]: _, ...rest } = schema;
  const nullable: JsonObject = others.length < choices.length ? { nullable: true } : {};
  if (others.length !== 1) return { ...schema, [keyword]: others, ...nullable };
  return { ...resolve(others[0], root), ...rest, ...nullable };
}

function withoutNullType(schema: JsonObject): JsonObject {
  if (!Array.isArray(schema.type)) return schema;
  const types = schema.type.filter((type) => type !== "null");
  const nullable: JsonObject = types.length < schema.type.length ? { nullable: true } : {};
  return { ...schema, type: types.length === 1 ? types[0]! : types, ...nullable };
}
