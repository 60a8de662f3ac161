import { describe, expect, it } from "vitest";
import type { Json, JsonObject } from "../protocol/types";
import { joinedText, markdownIn, shapeOf } from "./shapes";

const kindOf = (value: Json, schema: JsonObject = {}) => shapeOf(value, schema, schema).kind;

describe("the shape of a value", () => {
  it.each<[string, Json, JsonObject]>([
    ["plain", "short", {}],
    ["plain", "W".repeat(500), {}],
    ["plain", 12, {}],
    ["plain", null, {}],
    ["plain", { a: 1, b: ["x", { c: null }] }, {}],
    ["plain", [], {}],
    ["text", "two\nlines", {}],
    ["text", "word ".repeat(60), {}],
    ["text", "short", { type: "string", contentMediaType: "text/markdown" }],
    ["file", "QQ==", { type: "string", contentEncoding: "base64" }],
    ["file", "QQ==", { type: "string", format: "byte" }],
    ["file", { bytes: "QQ==", mimeType: "image/png" }, {}],
    ["rows", [{ a: 1, b: "x" }, { a: 2 }], {}],
    ["members", { rows: [{ a: 1 }], total: 1 }, {}],
    ["members", { report: { text: "two\nlines" } }, {}],
    ["list", ["two\nlines", "x"], {}],
    ["list", [{ bytes: "QQ==", mimeType: "image/png" }], {}],
    ["list", [{ title: "a", lines: [{ n: 1 }] }], {}],
  ])("is %s for %j", (kind, value, schema) => {
    expect(kindOf(value, schema)).toBe(kind);
  });

  it("comes from the schemas of members, even if they are nullable references", () => {
    const schema: JsonObject = {
      properties: { chart: { anyOf: [{ $ref: "#/$defs/Chart" }, { type: "null" }] } },
      $defs: { Chart: { type: "string", contentEncoding: "base64", contentMediaType: "image/png" } },
    };
    expect(kindOf({ chart: "QQ==" }, schema)).toBe("members");
    expect(kindOf({ chart: "QQ==" })).toBe("plain");
  });

  it("includes the name and type of a file, and the other members of its object", () => {
    const shape = shapeOf({ bytes: "QQ==", mimeType: "text/csv", name: "a.csv", rows: 3 }, {}, {});
    expect(shape).toEqual({
      kind: "file",
      part: { raw: "QQ==", mediaType: "text/csv", filename: "a.csv" },
      rest: { rows: 3 },
    });
  });
});

describe("the text of a stream", () => {
  it.each<[string, Json[]]>([
    ["members", [{ text: "a" }, { text: "b" }]],
    ["members with another name", [{ delta: "a" }, { delta: "b" }]],
    ["objects, the last with more members", [{ text: "a" }, { text: "b", tokens: 2 }]],
    ["strings", ["a", "b"]],
  ])("is joined from %s", (_, chunks) => {
    expect(joinedText(chunks.map((data) => ({ data })))).toBe("ab");
    expect(joinedText([{ text: "a" }, { text: "b" }])).toBe("ab");
  });

  it.each<[string, Json[]]>([
    ["one chunk", [{ text: "a" }]],
    ["records with a text", [{ text: "a", stars: 1 }, { text: "b", stars: 2 }]],
    ["numbers", [{ n: 1 }, { n: 2 }]],
    ["a chunk without a text", [{ text: "a" }, { n: 1 }]],
  ])("does not exist for %s", (_, chunks) => {
    expect(joinedText(chunks.map((data) => ({ data })))).toBeNull();
  });
});

it.each([
  ["# Title\n\ntext", undefined, true, true],
  ["- one\n- two", undefined, true, true],
  ["| a | b |\n|---|---|\n| 1 | 2 |", undefined, true, true],
  ["it is **so**", undefined, true, true],
  ["plain", "text/markdown", true, true],
  ["run `ls`", undefined, true, false],
  ["- one line", undefined, true, false],
  ["2 * 3 * 4 = 24\n1.5 kg", undefined, false, false],
  ["plain", undefined, false, false],
])("%j of type %s may be Markdown: %s, and is first shown as Markdown: %s", (text, mediaType, isPossible, isPreferred) => {
  expect(markdownIn({ text, mediaType })).toEqual({ isPossible, isPreferred });
});
