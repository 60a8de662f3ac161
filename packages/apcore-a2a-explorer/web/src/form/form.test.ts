import { describe, expect, it } from "vitest";
import { unsendableNumber } from "../protocol/values";
import { branchesOf, branchNames, initialData } from "./fields";
import { numberOf } from "./numbers";
import { resolve } from "./resolve";
import { validate } from "./validator";

const cash = { type: "object", properties: { cash: { type: "integer" } }, required: ["cash"] };
const card = { type: "object", properties: { number: { type: "string" } }, required: ["number"], additionalProperties: false };
const schema = (valueSchema: object) => ({ properties: { value: valueSchema } }) as never;
const messages = (valueSchema: object, value: unknown) =>
  validate(schema(valueSchema), { value } as never).map(({ field, message }) => `${field}: ${message}`);

describe("an invalid value", () => {
  it("is described without terms of JSON Schema", () => {
    expect(messages({ type: "integer" }, "x")).toEqual(["value: This must be an integer."]);
    expect(messages({ type: ["integer", "null"] }, 2.5)).toEqual(["value: This must be an integer."]);
    expect(messages({ pattern: "^a$" }, "b")).toEqual(["value: This does not match the pattern ^a$."]);
    expect(messages({ type: "string" }, null)).toEqual(["value: This must not be empty."]);
  });

  it("is reported for the branch that is probably meant", () => {
    const nick = { anyOf: [{ type: "string", maxLength: 4 }, { type: "null" }] };
    expect(messages(nick, "too long")).toEqual(["value: String is too long (8 > 4)."]);
    expect(messages({ oneOf: [cash, card] }, { number: 5 })).toEqual(["value.number: This must be a string."]);
    expect(messages({ oneOf: [card, cash] }, {})).toEqual(["value.number: This is required."]);
    expect(messages({ anyOf: [{ type: "integer" }, { type: "string" }] }, true)).toEqual(["value: This must be an integer or a string."]);
  });

  it("is reported if the schema allows no value", () => {
    expect(messages(false as never, 1)).toEqual(["value: This is not allowed."]);
    expect(messages({ prefixItems: [true], items: false }, [1, 2])).toEqual(["value.1: This is not allowed."]);
    expect(messages({ anyOf: [false, { type: "string" }] }, 5)).toEqual(["value: This must be a string."]);
    expect(messages({ additionalProperties: false }, { x: 1 })).toEqual(["value.x: This property is not in the skill's schema."]);
  });

  it("is reported if several branches of oneOf match", () => {
    const both = { oneOf: [{ type: "integer" }, { minimum: 3 }] };
    expect(messages(both, 5)).toEqual(["value: This matches several options, but must match exactly one."]);
    expect(messages(both, 1)).toEqual([]);
  });
});

it("integers beyond 2^53 are validated", () => {
  expect(messages({ type: "integer", maximum: 10 }, 2n ** 60n)).toEqual([expect.stringContaining("10")]);
  expect(messages({ type: "integer", minimum: 2 ** 55 }, 2n ** 60n)).toEqual([]);
});

it("numbers that cannot be sent are found in JSON, except inside strings", () => {
  expect(unsendableNumber(`{"a": [${"9".repeat(4301)}]}`)).toBe("9".repeat(4301));
  expect(unsendableNumber('{"a": -9007199254740993}')).toBeUndefined();
  expect(unsendableNumber('{"a": 1e400}')).toBe("1e400");
  expect(unsendableNumber('{"1e400": "\\" 1e400", "b": 9007199254740991, "c": 1e300}')).toBeUndefined();
});

it("the initial data of a form has constants, required objects and the defaults of required members", () => {
  const kind = { const: "cat", default: "cat" };
  const place = { type: "object", properties: { city: { type: "string" }, kind }, required: ["city"] };
  const properties = { a: { default: 1 }, b: { type: "integer", default: 2 }, place, other: place };
  expect(initialData({ properties, required: ["b", "place"] } as never)).toEqual({ b: 2, place: { kind: "cat" } });
});

it("the text of a number becomes a number; one with too many decimals stays a string if strings are allowed", () => {
  expect(numberOf("1.50", true)).toBe(1.5);
  expect(numberOf("9007199254740993", true)).toBe(9007199254740993n);
  expect(numberOf("-9007199254740993", false)).toBe(-9007199254740993n);
  expect(numberOf("0.1000000000000000000001", true)).toBe("0.1000000000000000000001");
  expect(numberOf("1e3", false)).toBe(1000);
  expect(numberOf("x", false)).toBe("x");
});

it("branches with equal titles have different names", () => {
  const branches = ["A", "A", "A 1"].map((title) => ({ title }));
  expect(branchNames(branches, {})).toEqual(["A 2", "A 3", "A 1"]);
});

it("null is no branch, even if several keywords allow it", () => {
  const list = { type: ["integer", "string", "null"], anyOf: [{ minimum: 3 }, { minLength: 3 }, { type: "null" }] };
  expect(branchesOf(resolve(list as never, {}), {}).map(({ type }) => type)).toEqual(["integer", "string"]);
  const choices = { anyOf: [{ minimum: 3 }, { maximum: 1 }], oneOf: [{ type: "integer" }, { type: "null" }] };
  expect(resolve(choices as never, {})).toEqual({ anyOf: choices.anyOf, type: "integer", nullable: true });
});
