import type { Json, JsonObject } from "../protocol/types";
import { isObject, objects, strings, text } from "../protocol/values";

/**
 * The schema that the form shows. A nullable value is one field that may be empty, instead of a
 * choice between two types. Required members come first, in the order of `required`, because
 * cards of A2A 1.0 sort the members of a schema by name.
 */
export function formSchema(schema: JsonObject): JsonObject {
  return simplified(schema) as JsonObject;
}

function simplified(value: Json): Json {
  if (Array.isArray(value)) return value.map(simplified);
  if (!isObject(value)) return value;
  const { default: defaultValue, ...rest } = withoutNull(value);
  const result = Object.fromEntries(
    Object.entries(rest).map(([keyword, item]) => [keyword, inner(keyword, item, rest)]),
  );
  return defaultValue === undefined || defaultValue === null ? result : { ...result, default: defaultValue };
}

const MAPS = new Set(["properties", "$defs", "definitions"]);

function inner(keyword: string, item: Json, schema: JsonObject): Json {
  if (keyword === "enum" || keyword === "const") return item;
  if (!isObject(item)) return simplified(item);
  if (MAPS.has(keyword)) return members(item, keyword === "properties" ? strings(schema.required) : []);
  // the form numbers items, so they need no model's name
  const { title, ...rest } = item;
  return simplified(keyword === "items" && isObject(item.properties) ? rest : item);
}

function members(properties: JsonObject, required: string[]): JsonObject {
  const rank = (name: string) => (required.includes(name) ? required.indexOf(name) : required.length);
  const ordered = Object.entries(properties).sort(([one], [other]) => rank(one) - rank(other));
  return Object.fromEntries(ordered.map(([name, item]) => [name, named(name, simplified(item))]));
}

/** Add the member's name to its title, which is often a model's name that several members share. */
function named(name: string, schema: Json): Json {
  if (!isObject(schema)) return schema;
  const title = text(schema.title);
  if (schema.$ref) return { title: name, ...schema };
  const differs = title && comparable(title) !== comparable(name);
  return schema.properties && differs ? { ...schema, title: `${title} (${name})` } : schema;
}

const comparable = (name: string) => name.toLowerCase().replaceAll(/[\W_]/g, "");

/** *value* without undefined members, which are emptied fields. */
export function filled<T extends Json | undefined>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => filled(item ?? null)) as T;
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([name, item]) => [name, filled(item)])) as T;
}

function withoutNull(schema: JsonObject): JsonObject {
  const choices = objects(schema.anyOf);
  const others = choices.filter((each) => each.type !== "null");
  if (choices.length > others.length && others.length === 1) {
    const { anyOf: _, ...rest } = schema;
    return { ...others[0], ...rest };
  }
  if (Array.isArray(schema.type) && schema.type.length === 2 && schema.type.includes("null")) {
    return { ...schema, type: schema.type.find((each) => each !== "null") as Json };
  }
  return schema;
}

/** The initial data of a form: the defaults of the schema's members. */
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

const LONG_TEXT = /^(text|body|content|description|markdown|prompt|query|message|comment)$/i;

/** The UI schema, with text areas for members that usually hold long texts. */
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
  LONG_TEXT.test(name) && (typeof property.maxLength !== "number" || property.maxLength > 300);
