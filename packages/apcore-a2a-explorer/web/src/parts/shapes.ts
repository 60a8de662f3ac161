/** Chooses how to show a value, by its schema and by the value itself. */

import { propertiesOf } from "../form/fields";
import { resolve } from "../form/resolve";
import type { Json, JsonObject, Part } from "../protocol/types";
import { isObject, text } from "../protocol/values";
import { rowsOf } from "./rows";

export type Shape =
  | { kind: "plain" }
  | { kind: "text"; part: Part }
  | { kind: "file"; part: Part; rest: JsonObject }
  | { kind: "rows"; rows: JsonObject[] }
  | { kind: "list"; items: Json[] }
  | { kind: "members"; members: JsonObject };

const PLAIN: Shape = { kind: "plain" };
const LONG_TEXT = 120; // characters
const MAX_DEPTH = 4; // levels of formatted members; deeper ones are shown as a tree
const MAX_EXAMINED = 200; // members or items

/** The shape of *value*. *schema* is its schema, resolved against *root*; empty if it has none. */
export function shapeOf(value: Json, schema: JsonObject, root: JsonObject, depth = 0): Shape {
  if (typeof value === "string") return stringShape(value, schema);
  if (depth >= MAX_DEPTH || value === null || typeof value !== "object") return PLAIN;
  if (Array.isArray(value)) return arrayShape(value, schema, root, depth);
  const file = fileIn(value);
  if (file) return file;
  const isPlain = Object.entries(value)
    .slice(0, MAX_EXAMINED)
    .every(([name, member]) => shapeOf(member, memberSchema(schema, name, root), root, depth + 1).kind === "plain");
  return isPlain ? PLAIN : { kind: "members", members: value };
}

/** The resolved schema of an object's member *name*; empty if the object's *schema* has no such member. */
export function memberSchema(schema: JsonObject, name: string, root: JsonObject): JsonObject {
  const members = propertiesOf(schema);
  return Object.hasOwn(members, name) ? resolve(members[name], root) : {};
}

function stringShape(value: string, schema: JsonObject): Shape {
  const mediaType = text(schema.contentMediaType);
  const isEncoded =
    /^base64(url)?$/i.test(text(schema.contentEncoding) ?? "") ||
    ["byte", "base64", "base64url"].includes(text(schema.format) ?? "");
  if (isEncoded) return { kind: "file", part: { raw: value, mediaType }, rest: {} };
  const isLong = value.includes("\n") || (value.length > LONG_TEXT && /\s/.test(value));
  return isLong || /^text\//.test(mediaType ?? "") ? { kind: "text", part: { text: value, mediaType } } : PLAIN;
}

function arrayShape(items: Json[], schema: JsonObject, root: JsonObject, depth: number): Shape {
  const itemSchema = resolve(schema.items, root);
  const shapes = items.slice(0, MAX_EXAMINED).map((item) => shapeOf(item, itemSchema, root, depth + 1));
  const hasFiles = shapes.some(({ kind }) => kind === "file");
  const rows = rowsOf(items);
  if (rows && !hasFiles) return { kind: "rows", rows };
  return shapes.every(({ kind }) => kind === "plain") ? PLAIN : { kind: "list", items };
}

const FILENAME_MEMBERS = ["name", "filename", "fileName"];

/** The file in an object that has bytes in base64 and a media type, as apcore modules return files; null for other objects. */
function fileIn({ bytes, mimeType, ...rest }: JsonObject): Shape | null {
  if (typeof bytes !== "string" || typeof mimeType !== "string") return null;
  const name = FILENAME_MEMBERS.find((candidate) => typeof rest[candidate] === "string");
  const filename = name && text(rest[name]);
  const others = Object.entries(rest).filter(([key]) => key !== name);
  return { kind: "file", part: { raw: bytes, mediaType: mimeType, filename }, rest: Object.fromEntries(others) };
}

const CHUNK_MEMBERS = ["text", "delta", "token", "content"];

/**
 * The text of a stream of text parts, or of data parts that are strings or objects with only a
 * text, such as `{"text": …}`; the last object may have further members. Null for other parts, or
 * for one part.
 */
export function joinedText(parts: Part[]): string | null {
  if (parts.length < 2) return null;
  if (parts.every((part) => part.text !== undefined)) return parts.map((part) => part.text).join("");
  const chunks = parts.map((part) => part.data);
  if (chunks.every((chunk) => typeof chunk === "string")) return chunks.join("");
  const name = CHUNK_MEMBERS.find((candidate) => isObject(chunks[0]) && typeof chunks[0][candidate] === "string");
  const isChunk = (chunk: Json | undefined, index: number) =>
    isObject(chunk) &&
    typeof chunk[name!] === "string" &&
    (Object.keys(chunk).length === 1 || index === chunks.length - 1);
  if (!name || !chunks.every(isChunk)) return null;
  return chunks.map((chunk) => (chunk as JsonObject)[name]).join("");
}

const STRONG_SIGNS = /^(#{1,6} +\S|```|\|? *:?-{3,}:? *\|)|\*\*[^\s*][^*\n]*\*\*|\[[^\]\n]+\]\(https?:/m;
const LIST = /(^|\n)([-*] |\d+\. )\S.*\n([-*] |\d+\. )\S/;
const WEAK_SIGNS = /(^|\n)([-*] |\d+\. |> |\|.*\|)|`[^`]+`|\[[^\]]+\]\(/;
const MAX_MARKDOWN = 200_000; // characters
const MAX_MARKDOWN_PREFERRED = 50_000; // characters; fewer, because a streamed text is parsed again with each chunk

/** Whether a text can be shown as Markdown, and whether Markdown is the first choice. */
export function markdownIn({ text: source = "", mediaType = "" }: Part): { isPossible: boolean; isPreferred: boolean } {
  const isDeclared = /markdown/.test(mediaType);
  const looksLikeMarkdown = STRONG_SIGNS.test(source) || LIST.test(source);
  return {
    isPossible: source.length < MAX_MARKDOWN && (isDeclared || looksLikeMarkdown || WEAK_SIGNS.test(source)),
    isPreferred: source.length < MAX_MARKDOWN_PREFERRED && (isDeclared || looksLikeMarkdown),
  };
}
