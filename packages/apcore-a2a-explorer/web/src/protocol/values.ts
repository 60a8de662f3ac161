import { digitsOf, MAX_DIGITS, toJson } from "./json";
import type { Json, JsonObject } from "./types";

// `text`, `strings`, `object` and `objects` return only values that have the type already; they convert nothing

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const objects = (value: unknown): JsonObject[] =>
  Array.isArray(value) ? value.filter(isObject) : [];

export const strings = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];

export const text = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;

export const object = (value: unknown): JsonObject | undefined =>
  isObject(value) ? value : undefined;

/** *source* without its undefined members. */
export function withoutUndefined(source: { [name: string]: unknown }): JsonObject {
  return Object.fromEntries(
    Object.entries(source).filter(([, value]) => value !== undefined),
  ) as JsonObject;
}

export const pretty = (value: Json | undefined) => toJson(value, 2) ?? "";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** The first number in the JSON *source* that cannot be sent: an integer with too many digits, or another number too large for a double. */
export function unsendableNumber(source: string): string | undefined {
  for (const [token] of source.matchAll(TOKEN)) {
    if (token.startsWith('"')) continue;
    const isInteger = /^-?\d+$/.test(token);
    if (isInteger ? digitsOf(token) > MAX_DIGITS : !Number.isFinite(Number(token))) return token;
  }
  return undefined;
}
