import { parseJson } from "./json";
import type { Part } from "./types";

/** The part for the user's input: data if the input is a JSON object or array, else text. */
export function partOf(source: string): Part {
  try {
    const data: unknown = parseJson(source);
    return typeof data === "object" && data !== null ? { data: data as Part["data"] } : { text: source };
  } catch {
    return { text: source };
  }
}
