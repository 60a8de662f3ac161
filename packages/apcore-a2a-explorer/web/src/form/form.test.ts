import { describe, expect, it } from "vitest";
import { inexact } from "../protocol/values";
import { filled, formSchema } from "./schema";
import { validate } from "./validator";

const cash = { type: "object", properties: { cash: { type: "integer" } }, required: ["cash"] };
const card = { type: "object", properties: { number: { type: "string" } }, required: ["number"], additionalProperties: false };
const schema = (value: object) => ({ properties: { value } }) as never;
const messages = (value: object, given: unknown) =>
  validate(schema(value), { value: given } as never).map(({ field, message }) => `${field}: ${message}`);

describe("what is wrong with a value", () => {
  it("is told without the schema's words", () => {
    expect(messages({ type: "integer" }, "x")).toEqual(["value: This is no integer."]);
    expect(messages({ type: ["integer", "null"] }, 2.5)).toEqual(["value: This is no integer."]);
    expect(messages({ pattern: "^a$" }, "b")).toEqual(["value: This does not match ^a$."]);
    expect(messages({ type: "string" }, null)).toEqual(["value: This is empty."]);
  });

  it("is told of the choice that is probably meant", () => {
    const nick = { anyOf: [{ type: "string", maxLength: 4 }, { type: "null" }] };
    expect(messages(nick, "too long")).toEqual(["value: String is too long (8 > 4)."]);
    expect(messages({ oneOf: [cash, card] }, { number: 5 })).toEqual(["value.number: This is no string."]);
    expect(messages({ oneOf: [card, cash] }, {})).toEqual(["value.number: This is required."]);
    expect(messages({ anyOf: [{ type: "integer" }, { type: "string" }] }, true)).toEqual(["value: This is no integer or string."]);
  });

  it("is told where several choices fit", () => {
    const both = { oneOf: [{ type: "integer" }, { minimum: 3 }] };
    expect(messages(both, 5)).toEqual(["value: This fits more than one of the choices."]);
    expect(messages(both, 1)).toEqual([]);
  });

  it("is told of numbers that lose their last digits", () => {
    expect(messages({}, [2 ** 53])).toEqual([expect.stringMatching(/^value\.0: So large/)]);
    expect(messages({}, 2 ** 53 - 1)).toEqual([]);
  });
});

it("numbers in JSON that would become others are found, those in texts are none", () => {
  expect(inexact('{"a": [9007199254740993]}')).toBe("9007199254740993");
  expect(inexact('{"a": -9007199254740993}')).toBe("-9007199254740993");
  expect(inexact('{"a": 1e400}')).toBe("1e400");
  expect(inexact('{"9007199254740993": "\\" 9007199254740993", "b": 9007199254740991, "c": 1e300}')).toBeUndefined();
});

it("a form has what is required first, and tells models of one kind apart", () => {
  const place = { type: "object", title: "Place", properties: {} };
  const found = formSchema({
    properties: { a: {}, from: place, enum: { type: ["string", "null"] }, to: { $ref: "#/$defs/Place" } },
    required: ["to", "from"],
  } as never);
  expect(Object.keys(found.properties as object)).toEqual(["to", "from", "a", "enum"]);
  expect(found.properties).toMatchObject({ to: { title: "to" }, from: { title: "Place (from)" }, enum: { type: "string" } });
});

it("emptied fields are not sent, at whatever depth", () => {
  expect(filled({ a: [{ b: undefined, c: 1 }, undefined] } as never)).toEqual({ a: [{ c: 1 }, null] });
});
