import type { Json, JsonObject } from "../protocol/types";
import { isObject, objects } from "../protocol/values";

/**
 * *schema* as the form shows it: where a value may be null, too, there is just an empty field,
 * instead of a choice between two kinds of value.
 */
export function formSchema(schema: JsonObject): JsonObject {
  return simplified(schema) as JsonObject;
}

function simplified(value: Json): Json {
  if (Array.isArray(value)) return value.map(simplified);
  if (!isObject(value)) return value;
  const { default: standard, ...rest } = withoutNull(value);
  const result = Object.fromEntries(
    Object.entries(rest).map(([name, item]) => [name, name === "enum" ? item : simplified(item)]),
  );
  return standard === undefined || standard === null ? result : { ...result, default: standard };
}

function withoutNull(schema: JsonObject): JsonObject {
  const choices = objects(schema.anyOf);
  const some = choices.filter((each) => each.type !== "null");
  if (choices.length > some.length && some.length === 1) {
    const { anyOf: _, ...rest } = schema;
    return { ...some[0], ...rest };
  }
  if (Array.isArray(schema.type) && schema.type.length === 2 && schema.type.includes("null")) {
    return { ...schema, type: schema.type.find((each) => each !== "null") as Json };
  }
  return schema;
}

/** What a form begins with: the defaults of the schema's own members. */
export function defaultsOf(schema: JsonObject | undefined): JsonObject {
  if (!isObject(schema?.properties)) return {};
  return Object.fromEntries(
    Object.entries(schema.properties).flatMap(([name, property]) =>
      isObject(property) && property.default !== undefined && property.default !== null
        ? [[name, property.default]]
        : [],
    ),
  );
}

export const hasForm = (schema: JsonObject | undefined): schema is JsonObject =>
  isObject(schema?.properties) && Object.keys(schema.properties).length > 0;

const LONG = /^(text|body|content|description|markdown|prompt|query|message|comment)$/i;

/** Long texts get more than a line. */
export function uiSchema(schema: JsonObject): JsonObject {
  const properties = isObject(schema.properties) ? schema.properties : {};
  return Object.fromEntries(
    Object.entries(properties).flatMap(([name, property]) => {
      if (!isObject(property)) return [];
      if (property.type === "string" && !property.enum && !property.format && isLong(name, property))
        return [[name, { "ui:widget": "textarea", "ui:options": { rows: 4 } }]];
      return isObject(property.properties) ? [[name, uiSchema(property)]] : [];
    }),
  );
}

const isLong = (name: string, property: JsonObject) =>
  LONG.test(name) && (typeof property.maxLength !== "number" || property.maxLength > 300);
