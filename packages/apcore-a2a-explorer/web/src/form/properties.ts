/** The members of a schema, as rows of a table that the page shows. */

import type { Json, JsonObject } from "../protocol/types";
import { toJson } from "../protocol/json";
import { isObject, strings, text } from "../protocol/values";
import { branchesOf, branchNames, furtherOf, isDecimal, optionsOf, orderOf, prefixOf, propertiesOf, restOf, typeOf } from "./fields";
import { resolve } from "./resolve";

export interface Property {
  /** The member's name; `[]` for the items of a list, `[0]` for an item of a tuple, `*` for further members, `or …` for a branch. */
  name: string;
  depth: number;
  type: string;
  required: boolean;
  default?: string;
  constraints: string[];
  description: string;
}

const MAX_DEPTH = 8;
const MAX_OPTIONS = 20;
const MAX_PROPERTIES = 1000;
const MAX_SHOWN = 200; // characters of a default or an option

/** The members of *schema*, each followed by its own members; a recursive schema ends at its repetition. */
export function propertiesIn(schema: JsonObject): Property[] {
  const root = resolve(schema, schema);
  const reader = new Reader(schema);
  const hasMembers = reader.read(root, 0, [root]);
  return hasMembers ? reader.properties : [row("(value)", root, schema, 0, true)];
}

class Reader {
  readonly properties: Property[] = [];

  constructor(private readonly root: JsonObject) {}

  /** Add a row for each member or item of *schema*; return whether there are any. */
  read(schema: JsonObject, depth: number, ancestors: JsonObject[]): boolean {
    const countBefore = this.properties.length;
    const branches = optionsOf(schema, this.root) || isDecimal(schema, this.root) ? [] : branchesOf(schema, this.root);
    if (branches.length > 1) this.#branches(branches, depth, ancestors);
    else {
      const required = strings(schema.required);
      for (const name of orderOf(schema)) {
        this.#add(name, propertiesOf(schema)[name]!, depth, ancestors, required.includes(name));
      }
      this.#items(schema, depth, ancestors);
    }
    return this.properties.length > countBefore;
  }

  #items(schema: JsonObject, depth: number, ancestors: JsonObject[]): void {
    prefixOf(schema).forEach((itemSchema, index) => this.#add(`[${index}]`, itemSchema, depth, ancestors, false));
    const rest = prefixOf(schema).length ? restOf(schema) : schema.items;
    if (isObject(rest)) this.#add("[]", rest, depth, ancestors, false);
    const further = typeOf(schema) === "object" ? furtherOf(schema) : undefined;
    if (isObject(further)) this.#add("*", further, depth, ancestors, false);
  }

  #branches(branches: JsonObject[], depth: number, ancestors: JsonObject[]): void {
    const names = branchNames(branches, this.root);
    branches.forEach((branch, index) => {
      if (this.properties.length >= MAX_PROPERTIES || depth >= MAX_DEPTH) return;
      this.properties.push({ ...row(`or ${names[index]}`, branch, this.root, depth, false) });
      if (!repeatsAny(branch, ancestors)) this.read(branch, depth + 1, [...ancestors, branch]);
    });
  }

  #add(name: string, raw: Json, depth: number, ancestors: JsonObject[], required: boolean): void {
    if (this.properties.length >= MAX_PROPERTIES) return;
    const schema = resolve(raw, this.root);
    const property = row(name, schema, this.root, depth, required);
    this.properties.push(property);
    if (repeatsAny(schema, ancestors)) property.type += ", as above";
    else if (depth < MAX_DEPTH) this.read(schema, depth + 1, [...ancestors, schema]);
  }
}

/**
 * Whether a schema repeats one of the *ancestors*: it has the same `properties` or `items`. The
 * schemas themselves are not compared, because resolving a reference may copy a schema.
 */
const repeatsAny = (schema: JsonObject, ancestors: JsonObject[]) =>
  ancestors.some(
    ({ properties, items }) =>
      (properties !== undefined && properties === schema.properties) ||
      (items !== undefined && items === schema.items),
  );

function row(name: string, schema: JsonObject, root: JsonObject, depth: number, required: boolean): Property {
  const { default: value } = schema;
  return {
    name,
    depth,
    type: describeType(schema, root),
    required,
    default: value === undefined ? undefined : shorten(value),
    constraints: constraintsOf(schema),
    description: text(schema.description) ?? text(schema.markdownDescription) ?? "",
  };
}

function describeType(schema: JsonObject, root: JsonObject): string {
  const type = describeTypeWithoutNull(schema, root);
  return schema.nullable && type !== "any" ? `${type} or null` : type;
}

function describeTypeWithoutNull(schema: JsonObject, root: JsonObject): string {
  const options = optionsOf(schema, root);
  if (options) {
    const listed = options.slice(0, MAX_OPTIONS).map(({ value }) => shorten(value));
    return `${listed.join(" | ")}${options.length > MAX_OPTIONS ? ` | … ${options.length - MAX_OPTIONS} more` : ""}`;
  }
  if (isDecimal(schema, root)) return "number or string of digits";
  const branches = branchesOf(schema, root);
  if (branches.length > 1) return branchNames(branches, root).join(" or ");
  const type = typeOf(schema);
  if (type === "array") {
    if (prefixOf(schema).length) return "tuple";
    return isObject(schema.items) ? `list of ${describeType(resolve(schema.items, root), root)}` : "list";
  }
  if (type === "object") {
    const further = Object.keys(propertiesOf(schema)).length ? undefined : furtherOf(schema);
    return isObject(further) ? `map to ${describeType(resolve(further, root), root)}` : "object";
  }
  const format = text(schema.format);
  return type ? `${type}${format ? ` (${format})` : ""}` : "any";
}

function constraintsOf(schema: JsonObject): string[] {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, pattern } = schema;
  return [
    minimum === undefined ? "" : `≥ ${shorten(minimum)}`,
    exclusiveMinimum === undefined ? "" : `> ${shorten(exclusiveMinimum)}`,
    maximum === undefined ? "" : `≤ ${shorten(maximum)}`,
    exclusiveMaximum === undefined ? "" : `< ${shorten(exclusiveMaximum)}`,
    multipleOf === undefined ? "" : `multiple of ${shorten(multipleOf)}`,
    range(schema.minLength, schema.maxLength, "character"),
    range(schema.minItems, schema.maxItems, "item"),
    range(schema.minProperties, schema.maxProperties, "member"),
    schema.uniqueItems === true ? "no duplicate items" : "",
    typeof pattern === "string" ? `pattern ${pattern}` : "",
    text(schema.contentMediaType) ?? "",
    text(schema.contentEncoding) ?? "",
    schema.additionalProperties === false ? "no further members" : "",
    schema.readOnly === true ? "read-only" : "",
    schema.deprecated === true ? "deprecated" : "",
  ].filter(Boolean);
}

function range(least: Json | undefined, most: Json | undefined, noun: string): string {
  const amount = (count: number) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  if (typeof least === "number" && typeof most === "number") {
    return least === most ? amount(least) : `${least} to ${amount(most)}`;
  }
  if (typeof least === "number") return least ? `at least ${amount(least)}` : "";
  return typeof most === "number" ? `at most ${amount(most)}` : "";
}

function shorten(value: Json): string {
  const source = toJson(value);
  return source.length > MAX_SHOWN ? `${source.slice(0, MAX_SHOWN)}…` : source;
}
