import { describe, expect, it } from "vitest";
import { hasLargeIntegers, parseJson, toJson, withNumbers } from "./json";

const LARGE = "123456789012345678901234567890";

describe("integers", () => {
  it.each([
    `{"n":${LARGE}}`,
    `[-${LARGE},[9007199254740993],{"a":9007199254740991}]`,
    `"${LARGE}"`,
    `{"${LARGE}":"\\" ${LARGE} \\\\","n":1.5,"text":"x${LARGE}"}`,
    `${"9".repeat(4300)}`,
    `-${"9".repeat(4300)}`,
    "[]",
  ])("are read and written again exactly: %s", (source) => {
    expect(toJson(parseJson(source))).toBe(source);
  });

  it("are numbers if they are safe as doubles, else BigInts", () => {
    expect(parseJson("[9007199254740991, 9007199254740992, 1e21, 0.12345678901234567890]")).toEqual([
      9007199254740991,
      9007199254740992n,
      1e21,
      0.12345678901234568,
    ]);
  });

  it("are written exactly in indented JSON", () => {
    expect(toJson({ n: [BigInt(LARGE)] }, 2)).toBe(`{\n  "n": [\n    ${LARGE}\n  ]\n}`);
    expect(toJson(undefined)).toBeUndefined();
  });

  it("that are large are found, except in strings", () => {
    expect(hasLargeIntegers(`{"a": ${LARGE}}`)).toBe(true);
    expect(hasLargeIntegers(`{"a": "${LARGE}", "b": 1e30, "c": 9007199254740991}`)).toBe(false);
  });

  it("are converted to doubles for code that supports only numbers", () => {
    expect(withNumbers({ a: [2n ** 60n, "x", null] })).toEqual({ a: [2 ** 60, "x", null] });
  });
});

it("source that is not JSON raises a SyntaxError, even with large integers", () => {
  expect(() => parseJson(`{"n": ${LARGE}, x}`)).toThrow(SyntaxError);
});
