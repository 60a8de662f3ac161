import type { Json, JsonObject } from "./types";

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

export const pretty = (value: Json | undefined) => JSON.stringify(value, null, 2) ?? "";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** A sentence for users about numbers that cannot be sent exactly. */
export const LARGEST_INTEGER = `The largest exact integer is ${Number.MAX_SAFE_INTEGER}.`;

/** The first number in the JSON *source* that a double cannot hold exactly. */
export function inexactNumber(source: string): string | undefined {
  for (const [token] of source.matchAll(TOKEN)) {
    if (token.startsWith('"')) continue;
    const large = /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
    if (large || !Number.isFinite(Number(token))) return token;
  }
  return undefined;
}
