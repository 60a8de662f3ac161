import { describe, expect, it } from "vitest";
import type { JsonObject } from "../protocol/types";
import corpus from "./corpus/schemas.json";
import { propertiesIn, type Property } from "./properties";

/** A row as one line: its name, indented by its depth, its type, and its other details. */
const brief = ({ name, depth, type, required, default: value, constraints, description }: Property) =>
  [
    `${"  ".repeat(depth)}${name}: ${type}`,
    required ? "required" : "",
    value === undefined ? "" : `= ${value}`,
    ...constraints,
    description,
  ]
    .filter(Boolean)
    .join("; ");

const rows = (properties: JsonObject, more: JsonObject = {}) =>
  propertiesIn({ type: "object", properties, ...more }).map(brief);

describe("the rows of a schema's members", () => {
  it("have types, defaults, constraints and descriptions", () => {
    const shown = rows(
      {
        n: { type: "integer", minimum: 1, exclusiveMaximum: 9, multipleOf: 2, description: "How many" },
        day: { anyOf: [{ type: "string", format: "date" }, { type: "null" }], default: null },
        code: { type: "string", minLength: 2, maxLength: 2, pattern: "^[A-Z]+$" },
        size: { enum: ["S", "M"], default: "M" },
        tags: { type: "array", items: { type: "string" }, uniqueItems: true, maxItems: 3 },
        one: { type: "array", maxItems: 1 },
        any: {},
      },
      { required: ["n"] },
    );
    expect(shown).toEqual([
      "n: integer; required; ≥ 1; < 9; multiple of 2; How many",
      "day: string (date) or null; = null",
      "code: string; 2 characters; pattern ^[A-Z]+$",
      'size: "S" | "M"; = "M"',
      "tags: list of string; at most 3 items; no duplicate items",
      "  []: string",
      "one: list; at most 1 item",
      "any: any",
    ]);
  });

  it("are followed by the rows of nested objects, lists, maps and branches", () => {
    const $defs = {
      Cat: { type: "object", properties: { kind: { const: "cat" }, lives: { type: "integer" } }, title: "Cat" },
      Dog: { type: "object", properties: { kind: { const: "dog" } }, title: "Dog" },
    };
    const shown = rows(
      {
        lines: { type: "array", items: { type: "object", properties: { sku: { type: "string" } } } },
        labels: { type: "object", additionalProperties: { type: "number" } },
        pet: { oneOf: [{ $ref: "#/$defs/Cat" }, { $ref: "#/$defs/Dog" }] },
        pair: { type: "array", prefixItems: [{ type: "string" }, { type: "number" }] },
      },
      { $defs },
    );
    expect(shown).toEqual([
      "lines: list of object",
      "  []: object",
      "    sku: string",
      "labels: map to number",
      "  *: number",
      "pet: Cat or Dog",
      "  or Cat: object",
      '    kind: "cat"',
      "    lives: integer",
      "  or Dog: object",
      '    kind: "dog"',
      "pair: tuple",
      "  [0]: string",
      "  [1]: number",
    ]);
  });

  it("end where a schema refers to itself", () => {
    const $defs = { Node: { type: "object", properties: { next: { $ref: "#/$defs/Node" } } } };
    expect(rows({ head: { $ref: "#/$defs/Node" } }, { $defs })).toEqual([
      "head: object",
      "  next: object, as above",
    ]);
  });

  it("are in the order of `propertyOrder`; without it, required members come first", () => {
    const properties = { a: { type: "string" }, b: { type: "string" } };
    const names = (more: JsonObject) => propertiesIn({ properties, ...more }).map(({ name }) => name);
    expect(names({ required: ["b"] })).toEqual(["b", "a"]);
    expect(names({ required: ["b"], propertyOrder: ["a", "b"] })).toEqual(["a", "b"]);
  });

  it("are one row for a value without members", () => {
    expect(propertiesIn({ type: "string", maxLength: 5 }).map(brief)).toEqual(["(value): string; required; at most 5 characters"]);
  });

  it.each(corpus as unknown as { name: string; schema: JsonObject }[])("exist for $name", ({ schema }) => {
    const shown = propertiesIn(schema);
    expect(shown.length).toBeGreaterThan(0);
    expect(shown.every(({ type }) => type)).toBe(true);
  });
});
