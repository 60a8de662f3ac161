import { describe, expect, it } from "vitest";
import { questionOf } from "./question";
import type { Json, Task } from "./types";

const ask = (data: Json, text = "For which day?") =>
  questionOf({
    id: "t",
    contextId: "c",
    status: {
      state: "input-required",
      message: { messageId: "m", role: "agent", parts: [{ text }, { data }] },
    },
    artifacts: [],
    history: [],
  } as Task)!;

const DAY: Json = { type: "string", format: "date" };
const BOOKING: Json = { type: "object", properties: { day: DAY } };

describe("the schema of an answer", () => {
  it.each<[string, Json, Json]>([
    ["may already describe an object", { schema: BOOKING }, BOOKING],
    ["has the question's field as its property", { field: "day", schema: DAY }, { type: "object", properties: { day: DAY }, required: ["day"] }],
    ["has the property `answer` if the question has no field", { schema: DAY }, { type: "object", properties: { answer: DAY }, required: ["answer"] }],
    ["may be in the data of the question", { data: { schema: BOOKING } }, BOOKING],
  ])("%s", (_, input, schema) => {
    expect(ask({ input })).toMatchObject({ schema, kind: "input" });
  });

  it("keeps its definitions", () => {
    const schema = { $ref: "#/$defs/Day", $defs: { Day: DAY } };
    expect(ask({ input: { field: "day", schema } }).schema).toEqual({
      type: "object",
      properties: { day: { $ref: "#/$defs/Day" } },
      required: ["day"],
      $defs: { Day: DAY },
    });
  });

  it("is not shown a second time as data", () => {
    expect(ask({ input: { data: { schema: BOOKING } } }).data).toBeUndefined();
    expect(ask({ input: { data: { schema: BOOKING, note: 1 } } }).data).toEqual({ note: 1 });
    expect(ask({ input: { schema: BOOKING, data: { note: 1 } } }).data).toEqual({ note: 1 });
  });
});

describe("the text of a question", () => {
  it.each([
    ["Approval required for module files.delete\npath: a.txt", ""],
    ['Please answer yes or no, or {"approved": true} or {"approved": false}', ""],
    ["Delete 3 files?", "Delete 3 files?"],
  ])("for an approval with the prompt %j is %j", (prompt, text) => {
    expect(ask({ approval: { arguments: {} } }, prompt).text).toBe(text);
  });

  it("does not list the choices, because they are shown as buttons", () => {
    const input = { choices: ["mi", "lb"] };
    expect(ask({ input }, "In which unit?\n1. mi\n2. lb\n… and 2 more").text).toBe("In which unit?\n… and 2 more");
  });
});
