/** The kinds of fields for schemas, and the initial values of forms. */

import type { Json, JsonObject } from "../protocol/types";
import { toJson } from "../protocol/json";
import { isObject, strings, text } from "../protocol/values";
import { combine, resolve } from "./resolve";

export type Kind =
  | "text"
  | "long text"
  | "number"
  | "boolean"
  | "choice"
  | "checks" // checkboxes
  | "date"
  | "file"
  | "list"
  | "tuple"
  | "object"
  | "union"
  | "any";

/** Required objects nested deeper than this are left out until the user adds them. */
export const MAX_OPEN_DEPTH = 4;

/** Fields nested deeper than this are JSON fields. */
export const MAX_DEPTH = 12;

/** The kind of field for a resolved schema. */
export function kindOf(schema: JsonObject, root: JsonObject, name = ""): Kind {
  if (optionsOf(schema, root)) return "choice";
  if (isDecimal(schema, root)) return "number";
  if (branchesOf(schema, root).length > 1) return "union";
  const type = typeOf(schema);
  if (type === "string") return textKind(schema, name);
  if (type === "number" || type === "integer") return "number";
  if (type === "array") return arrayKind(schema, root);
  return type === "boolean" || type === "object" ? type : "any";
}

const TYPE_KEYWORDS: [string, string[]][] = [
  ["object", ["properties", "additionalProperties", "patternProperties"]],
  ["array", ["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]],
  ["string", ["pattern", "minLength", "maxLength", "format", "contentEncoding"]],
  ["number", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]],
];

const impliedType = (schema: JsonObject) =>
  schema.type === undefined
    ? TYPE_KEYWORDS.find(([, keywords]) => keywords.some((keyword) => schema[keyword] !== undefined))?.[0]
    : undefined;

/** The type of a resolved schema: its `type`, or the type that its other keywords imply. */
export const typeOf = (schema: JsonObject) => text(schema.type) ?? impliedType(schema);

const LONG_TEXT_NAMES = /^(text|body|content|description|markdown|prompt|query|message|comment)$/i;
const MIN_LONG_TEXT = 300; // characters

function textKind(schema: JsonObject, name: string): Kind {
  if (isFile(schema)) return "file";
  if (["date", "date-time", "time"].includes(text(schema.format) ?? "")) return "date";
  if (schema.format || schema.pattern) return "text";
  if (typeof schema.maxLength === "number") return schema.maxLength > MIN_LONG_TEXT ? "long text" : "text";
  const holdsText = /^text\//.test(text(schema.contentMediaType) ?? "");
  return holdsText || LONG_TEXT_NAMES.test(name) ? "long text" : "text";
}

const isFile = (schema: JsonObject) =>
  /^base64(url)?$/i.test(text(schema.contentEncoding) ?? "") ||
  ["binary", "byte", "base64", "base64url"].includes(text(schema.format) ?? "");

function arrayKind(schema: JsonObject, root: JsonObject): Kind {
  if (prefixOf(schema).length) return "tuple";
  const options = optionsOf(resolve(schema.items, root), root);
  return options && options.length > 1 ? "checks" : "list";
}

/** The schemas of a tuple's items: `prefixItems`, or `items` in older drafts. */
export const prefixOf = (schema: JsonObject): Json[] =>
  Array.isArray(schema.prefixItems) ? schema.prefixItems : Array.isArray(schema.items) ? schema.items : [];

/**
 * The schema of the items after those that a tuple declares one by one; undefined if the tuple
 * forbids further items or does not mention them.
 */
export function restOf(schema: JsonObject): Json | undefined {
  const rest = Array.isArray(schema.items) ? schema.additionalItems : schema.items;
  const isFull = typeof schema.maxItems === "number" && schema.maxItems <= prefixOf(schema).length;
  return rest === false || rest === undefined || isFull ? undefined : rest;
}

export interface Option {
  value: Json;
  label: string;
}

/** The options of an enum, of a const, or of branches that all have options; null for other schemas. */
export function optionsOf(schema: JsonObject, root: JsonObject, levels = 8): Option[] | null {
  if (!levels) return null;
  if (schema.const !== undefined) return [option(schema.const, schema)];
  if (Array.isArray(schema.enum)) {
    const values = schema.enum.filter((value) => value !== null);
    return values.length ? values.map((value) => option(value, {})) : null;
  }
  const choices = choicesOf(schema).map((choice) => resolve(choice, root));
  const lists = choices.map((choice) => optionsOf(choice, root, levels - 1));
  return lists.length && lists.every((list) => list !== null) ? lists.flat() : null;
}

const option = (value: Json, { title }: JsonObject): Option => ({
  value,
  label: text(title) ?? (typeof value === "string" ? value : toJson(value)),
});

const choicesOf = ({ oneOf, anyOf }: JsonObject): Json[] =>
  Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : [];

/**
 * Whether a schema allows a number or a string of digits, as pydantic's schema of a Decimal does:
 * the string has a pattern with `\d`, or the schema has a default of digits. Strings keep all digits.
 */
export function isDecimal(schema: JsonObject, root: JsonObject): boolean {
  const choices = choicesOf(schema).map((choice) => resolve(choice, root));
  const number = choices.find((choice) => choice.type === "number" || choice.type === "integer");
  const string = choices.find((choice) => choice.type === "string");
  const hasDigits = text(string?.pattern)?.includes("\\d") || /^-?[\d.]+$/.test(text(schema.default) ?? "");
  return choices.length === 2 && number !== undefined && string !== undefined && hasDigits;
}

const SHAPE_KEYWORDS = ["type", "properties", "items", "prefixItems", "const", "enum", "$ref", "allOf", "anyOf", "oneOf"];

/** The alternatives of a schema, each resolved; empty if they have only keywords such as `required`. */
export function branchesOf(schema: JsonObject, root: JsonObject): JsonObject[] {
  if (Array.isArray(schema.type)) {
    const { type, ...rest } = schema;
    return schema.type.map((type) => ({ ...rest, type, title: typeName(type) }));
  }
  const choices = choicesOf(schema);
  const haveShape = choices.some((choice) => isObject(choice) && SHAPE_KEYWORDS.some((keyword) => keyword in choice));
  if (!haveShape) return [];
  const { type, properties, required } = schema;
  const base: JsonObject = properties ? { type: type ?? "object", properties, required: required ?? [] } : {};
  return choices.map((choice) => combine([base, resolve(choice, root)]));
}

const TYPE_NAMES: Record<string, string> = {
  integer: "Whole number",
  number: "Number",
  string: "Text",
  boolean: "Yes or no",
  array: "List",
  object: "Object",
};
const typeName = (type: Json | undefined) => TYPE_NAMES[String(type)] ?? "Any value";

/** The names of branches: their titles, discriminating constants, or types; no two are equal. */
export function branchNames(branches: JsonObject[], root: JsonObject): string[] {
  const names = branches.map((branch) => branchName(branch, root));
  const taken = new Set(names);
  return names.map((name, index) => {
    if (names.indexOf(name) === names.lastIndexOf(name)) return name;
    let number = index + 1;
    while (taken.has(`${name} ${number}`)) number++;
    taken.add(`${name} ${number}`);
    return `${name} ${number}`;
  });
}

function branchName(branch: JsonObject, root: JsonObject): string {
  if (text(branch.title)) return text(branch.title)!;
  const constant = Object.values(constantsOf(branch, root))[0];
  if (constant !== undefined) return String(constant);
  const items = isObject(branch.items) ? resolve(branch.items, root) : undefined;
  if (items?.type) return `List of ${text(items.title) ?? typeName(items.type).toLowerCase()}`;
  return typeName(branch.type ?? impliedType(branch));
}

/**
 * The values of members that allow only one value. Optional members are left out unless that value
 * is their default.
 */
export function constantsOf(schema: JsonObject, root: JsonObject): JsonObject {
  const required = strings(schema.required);
  return Object.fromEntries(
    Object.entries(propertiesOf(schema)).flatMap(([name, raw]) => {
      const member = resolve(raw, root);
      const options = optionsOf(member, root);
      const isFixed = options?.length === 1 && (required.includes(name) || sameJson(member.default, options[0]!.value));
      return isFixed ? [[name, options[0]!.value]] : [];
    }),
  );
}

export const sameJson = (left: Json | undefined, right: Json | undefined) =>
  left === right || toJson(left) === toJson(right);

export const propertiesOf = (schema: JsonObject): JsonObject =>
  isObject(schema.properties) ? schema.properties : {};

/**
 * The names of an object's members in the order of `propertyOrder`; without a `propertyOrder`,
 * required members come first.
 */
export function orderOf(schema: JsonObject): string[] {
  const names = Object.keys(propertiesOf(schema));
  const order = strings(schema.propertyOrder);
  const required = strings(schema.required);
  const firstNames = order.length ? order : required;
  const rank = (name: string) => (firstNames.includes(name) ? firstNames.indexOf(name) : firstNames.length);
  return names.sort((left, right) => rank(left) - rank(right));
}

/** The schema of an object's members beyond its declared properties; undefined if the form offers no such members. */
export function furtherOf(schema: JsonObject): Json | undefined {
  const { additionalProperties, patternProperties } = schema;
  const patterns = isObject(patternProperties) ? Object.values(patternProperties) : [];
  if (patterns.length) return patterns[0];
  if (additionalProperties === undefined) return Object.keys(propertiesOf(schema)).length ? undefined : true;
  return additionalProperties === false ? undefined : additionalProperties;
}

/** The label of a member. The title of an object or referenced schema is not enough, because several members may share it. */
export function labelOf(name: string, raw: Json | undefined, schema: JsonObject): string {
  if (isObject(raw) && raw.$ref !== undefined) return text(raw.title) ?? name;
  const title = text(schema.title);
  if (!title) return name;
  return schema.properties && comparable(title) !== comparable(name) ? `${title} (${name})` : title;
}

const comparable = (name: string) => name.toLowerCase().replaceAll(/[\W_]/g, "");

/** The initial value of a field; undefined if the field has none. */
export function initialValueOf(schema: Json | undefined, root: JsonObject, depth = 0): Json | undefined {
  const resolvedSchema = resolve(schema, root);
  if (kindOf(resolvedSchema, root) !== "object") return undefined;
  const required = strings(resolvedSchema.required);
  const constants = constantsOf(resolvedSchema, root);
  const entries = Object.entries(propertiesOf(resolvedSchema)).flatMap(([name, raw]) => {
    if (Object.hasOwn(constants, name)) return [[name, constants[name]!]];
    const value = required.includes(name) ? initialRequiredValue(raw, root, depth) : undefined;
    return value === undefined ? [] : [[name, value]];
  });
  return Object.fromEntries(entries);
}

function initialRequiredValue(raw: Json, root: JsonObject, depth: number): Json | undefined {
  const schema = resolve(raw, root);
  // a skill might not fill in a required member's default, so the form sends it
  if (schema.default !== undefined) return schema.default;
  if (schema.nullable) return null;
  const kind = kindOf(schema, root);
  if (kind === "boolean") return false;
  return kind === "object" && depth < MAX_OPEN_DEPTH ? initialValueOf(raw, root, depth + 1) : undefined;
}

/** The initial data of a form. Defaults of optional members are left to the skill. */
export function initialData(schema: JsonObject | undefined): JsonObject {
  const value = schema && initialValueOf(schema, schema);
  return isObject(value) ? value : {};
}

const FORM_KEYWORDS = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"];

export function hasForm(schema: JsonObject | undefined): schema is JsonObject {
  if (!isObject(schema)) return false;
  const { additionalProperties: further } = schema;
  return (
    Object.keys(propertiesOf(schema)).length > 0 ||
    further === true ||
    isObject(further) ||
    FORM_KEYWORDS.some((keyword) => schema[keyword] !== undefined)
  );
}

/** The index of the branch that fits a value best: *chosen*, unless another branch fits better. */
export function branchFor(
  value: Json | undefined,
  branches: JsonObject[],
  chosen: number,
  fits: (branch: JsonObject, value: Json) => boolean,
  root: JsonObject,
): number {
  if (value === undefined || value === null) return chosen;
  const scores = branches.map((branch) => score(value, branch, root) + (fits(branch, value) ? 50 : 0));
  const best = Math.max(...scores);
  return chosen >= 0 && scores[chosen] === best ? chosen : scores.indexOf(best);
}

function score(value: Json, branch: JsonObject, root: JsonObject): number {
  if (isObject(value)) {
    const members = propertiesOf(branch);
    const constants = Object.entries(constantsOf(branch, root));
    const matchingCount = constants.filter(([name, constant]) => sameJson(value[name], constant)).length;
    const knownCount = Object.keys(value).filter((name) => Object.hasOwn(members, name)).length;
    return (kindOf(branch, root) === "object" ? 1 : 0) + knownCount + 1000 * (2 * matchingCount - constants.length);
  }
  const kinds: Record<string, string[]> = {
    string: ["text", "long text", "date", "file"],
    number: ["number"],
    bigint: ["number"],
    boolean: ["boolean"],
    object: ["list", "tuple", "checks"],
  };
  const options = optionsOf(branch, root);
  if (options) return options.some((candidate) => sameJson(candidate.value, value)) ? 1 : 0;
  return kinds[typeof value]?.includes(kindOf(branch, root)) ? 1 : 0;
}

/** Whether an object has the members `bytes` and `mimeType`, in which skills receive files. */
export function holdsFile(schema: JsonObject): boolean {
  const members = propertiesOf(schema);
  return Object.hasOwn(members, "bytes") && Object.hasOwn(members, "mimeType");
}
