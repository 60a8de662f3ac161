/**
 * JSON with integers of up to `MAX_DIGITS` digits. Integers that are not safe as doubles are BigInts:
 * `JSON.parse` would round them, and `JSON.stringify` cannot write BigInts.
 */

import type { Json } from "./types";

// random, so that no text of an agent is taken for a number
const MARK = `integer-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}:`;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MAY_BE_LARGE = /\d{16}/;

/** The maximum number of digits of an integer; agents of this project refuse longer ones. */
export const MAX_DIGITS = 4300;

/** The number of digits of an integer. */
export const digitsOf = (integer: string) => integer.replace("-", "").length;

/** Whether a token of JSON is an integer that is read as a BigInt. */
const isLarge = (token: string) =>
  /^-?\d+$/.test(token) && digitsOf(token) <= MAX_DIGITS && !Number.isSafeInteger(Number(token));

/** Parse JSON; throw a SyntaxError if *source* is not JSON. */
export function parseJson(source: string): Json {
  if (!MAY_BE_LARGE.test(source)) return JSON.parse(source) as Json;
  const marked = source.replace(TOKEN, (token) => (isLarge(token) ? `"${MARK}${token}"` : token));
  try {
    return JSON.parse(marked, (_, value: unknown) =>
      typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
    ) as Json;
  } catch {
    return JSON.parse(source) as Json; // throws an error with positions in *source*, not in *marked*
  }
}

/** Write JSON with all digits of integers; undefined gives undefined, as in `JSON.stringify`. */
export function toJson(value: unknown, indent?: number): string {
  let hasLarge = false;
  const json = JSON.stringify(
    value,
    (_, member: unknown) => (typeof member === "bigint" ? ((hasLarge = true), MARK + String(member)) : member),
    indent,
  );
  return hasLarge ? json.replace(MARKED, "$1") : json;
}

/** Whether JSON text has integers that JavaScript would round. */
export const hasLargeIntegers = (source: string) =>
  MAY_BE_LARGE.test(source) && (source.match(TOKEN) ?? []).some(isLarge);

/** A copy with the nearest doubles in place of BigInts, for code that supports only numbers. */
export function withNumbers<T>(value: T): T {
  if (typeof value === "bigint") return Number(value) as T;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(withNumbers) as T;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withNumbers(member)])) as T;
}
