import { expect, test } from "vitest";
import { diffLines } from "./diff";

const shown = (before: string, after: string) =>
  diffLines(before, after).map(({ sign, text }) => sign + text);

test("lines that differ are removed and added; common lines stay", () => {
  expect(shown("a\nb\nc\nd", "a\nx\nc\ny\nd")).toEqual([" a", "-b", "+x", " c", "+y", " d"]);
  expect(shown("a", "a")).toEqual([" a"]);
  expect(shown("a\na", "a")).toEqual([" a", "-a"]);
  expect(shown("", "b")).toEqual(["-", "+b"]);
});

test("very long texts are replaced as a whole", () => {
  const many = (prefix: string) => Array.from({ length: 1001 }, (_, index) => `${prefix}${index}`);
  const lines = shown(many("a").join("\n"), many("b").join("\n"));
  expect(lines.slice(0, 1001)).toEqual(many("-a"));
  expect(lines.slice(1001)).toEqual(many("+b"));
});
