import { expect, it } from "vitest";
import type { Json } from "../protocol/types";
import { isLarger, pathTo, search } from "./search";

const value = { title: "Emma", shelf: { books: ["Ulysses", "Emma"], lent: null }, other: { n: [1, 23] } };

it.each<[string, number, Json[]]>([
  ["emma", 2, [value, value.shelf, value.shelf.books]],
  ["BOOK", 1, [value, value.shelf]],
  ["23", 1, [value, value.other, value.other.n]],
  ["null", 1, [value, value.shelf]],
  ["0", 0, []], // the index of an item is not its name
  ["absent", 0, []],
])("%s is found %d times", (phrase, count, holders) => {
  const found = search(value, phrase);
  expect(found.count).toBe(count);
  expect([...found.holders]).toEqual(expect.arrayContaining(holders));
  expect(found.holders.size).toBe(holders.length);
});

it("paths are JSONPath", () => {
  expect(["rows", 0, "a b", 'q"', "__proto__"].reduce(pathTo as never, "$")).toBe(
    '$.rows[0]["a b"]["q\\""].__proto__',
  );
});

it("members at any depth count towards the limit", () => {
  expect(isLarger(value, 9)).toBe(true);
  expect(isLarger(value, 10)).toBe(false);
  expect(isLarger("x".repeat(100), 1)).toBe(false);
});
