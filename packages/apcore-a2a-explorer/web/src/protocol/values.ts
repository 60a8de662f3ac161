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

/** *source* without the members that are undefined. */
export function given(source: { [name: string]: unknown }): JsonObject {
  return Object.fromEntries(
    Object.entries(source).filter(([, value]) => value !== undefined),
  ) as JsonObject;
}

export const pretty = (value: Json | undefined) => JSON.stringify(value, null, 2) ?? "";
