import type { Json, JsonObject } from "../protocol/types";
import { isObject, objects, strings, text } from "../protocol/values";

/**
 * *schema* as the form shows it: where a value may be null, too, there is just an empty field,
 * instead of a choice between two kinds of value. What is required comes first, in its order,
 * for cards of A2A 1.0 sort the members of a schema by name.
 */
export function formSchema(schema: JsonObject): JsonObject {
  return simplified(schema) as JsonObject;
}

function simplified(value: Json): Json {
  if (Array.isArray(value)) return value.map(simplified);
  if (!isObject(value)) return value;
  const { default: standard, ...rest } = withoutNull(value);
  const result = Object.fromEntries(
    Object.entries(rest).map(([keyword, item]) => [keyword, inner(keyword, item, rest)]),
  );
  return standard === undefined || standard === null ? result : { ...result, default: standard };
}

const MAPS = new Set(["properties", "$defs", "definitions"]);

function inner(keyword: string, item: Json, schema: JsonObject): Json {
  if (keyword === "enum" || keyword === "const") return item;
  if (!isObject(item)) return simplified(item);
  if (MAPS.has(keyword)) return members(item, keyword === "properties" ? strings(schema.required) : []);
  // the form numbers items; a model's name would stand in the way
  const { title, ...rest } = item;
  return simplified(keyword === "items" && isObject(item.properties) ? rest : item);
}

function members(properties: JsonObject, required: string[]): JsonObject {
  const rank = (name: string) => (required.includes(name) ? required.indexOf(name) : required.length);
  const found = Object.entries(properties).sort(([one], [other]) => rank(one) - rank(other));
  return Object.fromEntries(found.map(([name, item]) => [name, named(name, simplified(item))]));
}

/** An object's title often is the name of a model, which several members may have. */
function named(name: string, schema: Json): Json {
  if (!isObject(schema)) return schema;
  const title = text(schema.title);
  if (schema.$ref) return { title: name, ...schema };
  const differs = title && plain(title) !== plain(name);
  return schema.properties && differs ? { ...schema, title: `${title} (${name})` } : schema;
}

const plain = (name: string) => name.toLowerCase().replaceAll(/[\W_]/g, "");

/** *value* without the members that are undefined: fields that were emptied. */
export function filled<T extends Json | undefined>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => filled(item ?? null)) as T;
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([name, item]) => [name, filled(item)])) as T;
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
