import type { Json } from "../protocol/types";

export interface SearchResult {
  /** The objects and arrays in which something was found, at any depth. */
  holders: Set<Json>;
  count: number;
}

/** Whether the name or the value of a member contains *phrase*, which is in lower case. */
export const matches = (name: string, value: Json, phrase: string) =>
  name.toLowerCase().includes(phrase) ||
  ((value === null || typeof value !== "object") && String(value).toLowerCase().includes(phrase));

/** Find the members of *value* whose name or value contains *phrase*. */
export function search(value: Json, phrase: string): SearchResult {
  const found: SearchResult = { holders: new Set(), count: 0 };
  searchMembers(value, phrase.toLowerCase(), found);
  return found;
}

function searchMembers(value: Json, phrase: string, found: SearchResult): boolean {
  if (value === null || typeof value !== "object") return false;
  let hasMatch = false;
  for (const [name, member] of Object.entries(value)) {
    const isMatch = matches(Array.isArray(value) ? "" : name, member, phrase);
    if (isMatch) found.count++;
    hasMatch = searchMembers(member, phrase, found) || isMatch || hasMatch;
  }
  if (hasMatch) found.holders.add(value);
  return hasMatch;
}

/** Whether *value* has more than *limit* members, at any depth. */
export function isLarger(value: Json, limit: number): boolean {
  let remaining = limit;
  const exceedsLimit = (member: Json): boolean => {
    if (member === null || typeof member !== "object") return false;
    remaining -= Object.keys(member).length;
    return remaining < 0 || Object.values(member).some(exceedsLimit);
  };
  return exceedsLimit(value);
}

/** The path of a member below *parent*, as in JSONPath (RFC 9535): `$.rows[0]["a b"]`. */
export const pathTo = (parent: string, key: string | number) =>
  typeof key === "string" && /^[A-Za-z_]\w*$/.test(key) ? `${parent}.${key}` : `${parent}[${JSON.stringify(key)}]`;
