import { describe, expect, it } from "vitest";
import { checkCard, checkRequest, checkResponse } from "./conformance";
import type { Operation } from "./types";
import { envelope } from "./binding";
import { v03 } from "./v03";
import { v1 } from "./v1";

const MESSAGE = { messageId: "m", role: "user" as const, parts: [{ text: "hi" }, { data: [1] }, { raw: "QQ==", filename: "a" }] };
const OPERATIONS: Operation[] = [
  { name: "send", message: MESSAGE, metadata: { skillId: "s" }, options: { returnImmediately: true, push: { url: "https://x.example" } } },
  { name: "stream", message: { ...MESSAGE, taskId: "t", contextId: "c" } },
  { name: "get", id: "t" },
  { name: "cancel", id: "t" },
  { name: "subscribe", id: "t" },
  { name: "list", query: { state: "working", pageSize: 5, changedAfter: "2026-01-01T00:00:00Z" } },
  { name: "setPush", taskId: "t", config: { url: "https://x.example", token: "x" } },
  { name: "listPush", taskId: "t" },
  { name: "deletePush", taskId: "t", id: "c" },
  { name: "extendedCard" },
];

describe.each([v1, v03])("A2A $version", (dialect) => {
  it.each(OPERATIONS)("requests of the page conform: $name", (operation) => {
    const request = dialect.request(operation);
    const findings = checkRequest(dialect.version, request.method, JSON.stringify(envelope(request, 1)));
    // A2A 0.3 has no method to list tasks
    const hasNoMethod = operation.name === "list" && dialect === v03;
    expect(findings).toEqual(hasNoMethod ? null : { errors: [], unknown: [] });
  });
});

const response = (result: unknown, more = {}) => JSON.stringify({ jsonrpc: "2.0", id: 1, result, ...more });
const TASK = { id: "t", contextId: "c", status: { state: "TASK_STATE_COMPLETED" } };
const V03_TASK = { kind: "task", id: "t", contextId: "c", status: { state: "completed" } };

describe("a mismatch is named with its path", () => {
  const state = "TASK_STATE_UNSPECIFIED, TASK_STATE_SUBMITTED";
  it.each<[string, unknown, string[]]>([
    ["no mismatch in a task", TASK, []],
    ["a missing member", { ...TASK, id: undefined }, ["result.id: is missing"]],
    ["a wrong type", { ...TASK, id: 5 }, ["result.id: string expected, not 5"]],
    ["an object instead of a list", { ...TASK, history: {} }, ["result.history: list expected, not {}"]],
    [
      "a part without content",
      { ...TASK, artifacts: [{ artifactId: "a", parts: [{ text: "x" }, { filename: "y" }] }] },
      ["result.artifacts[0].parts[1]: exactly one of text, raw, url, data is needed"],
    ],
    ["a text instead of a task", "completed", ['result: Task expected, not "completed"']],
  ])("%s", (_, task, errors) => {
    expect(checkResponse("1.0", "GetTask", response(task), false)).toEqual({ errors, unknown: [] });
  });

  it("a state of the other version", () => {
    const [error] = checkResponse("1.0", "GetTask", response({ ...TASK, status: { state: "completed" } }), false)!.errors;
    expect(error).toContain(`result.status.state: one of ${state}`);
    expect(error).toContain('not "completed"');
  });

  it.each<[string, string, unknown, string[]]>([
    ["no mismatch in a task", "message/send", V03_TASK, []],
    ["in the alternative with the same kind", "message/send", { ...V03_TASK, status: {} }, ["result.status.state: is missing"]],
    ["no kind", "tasks/get", { ...V03_TASK, kind: undefined }, ["result.kind: is missing"]],
    [
      "in the part with the same kind",
      "message/send",
      { kind: "message", messageId: "m", role: "agent", parts: [{ kind: "text", text: 1 }] },
      ["result.parts[0].text: string expected, not 1"],
    ],
    ["no mismatch in the null after a deletion", "tasks/pushNotificationConfig/delete", null, []],
  ])("of 0.3: %s", (_, method, result, errors) => {
    expect(checkResponse("0.3", method, response(result), false)).toEqual({ errors, unknown: [] });
  });

  it.each([
    ["<html>", ["not a JSON object"]],
    [response(TASK, { jsonrpc: "1.0" }), ['jsonrpc: "2.0" expected']],
    [response(TASK, { id: {} }), ["id: string, number or null expected"]],
    [response(TASK, { error: {} }), ["exactly one of result and error is needed"]],
    [response(undefined, { error: { code: "x" } }), ["error.code: integer expected", "error.message: string expected"]],
    [response(undefined, { error: { code: -32001, message: "gone" } }), []],
  ])("of JSON-RPC in %s", (body, errors) => {
    expect(checkResponse("1.0", "GetTask", body, false)).toEqual({ errors, unknown: [] });
  });

  it("in each frame of a stream", () => {
    const frames = [{ task: TASK }, {}, { task: TASK, message: null }, { task: TASK, message: [] }].map((result) => `data: ${response(result)}\n\n`);
    expect(checkResponse("1.0", "SendStreamingMessage", frames.join(""), true)?.errors).toEqual([
      "frame 2: result: exactly one of task, message, statusUpdate, artifactUpdate is needed",
      "frame 4: result: exactly one of task, message, statusUpdate, artifactUpdate is needed",
      "frame 4: result.message: Message expected, not []",
    ]);
  });
});

describe("members that the version does not know are marked", () => {
  it("in a request", () => {
    const body = { jsonrpc: "2.0", id: 1, method: "GetTask", params: { id: "t", verbose: true }, extra: 1 };
    expect(checkRequest("1.0", "GetTask", JSON.stringify(body))).toEqual({
      errors: [],
      unknown: ["extra", "params.verbose"],
    });
  });

  it.each<[string, unknown, string[]]>([
    ["a member of the other version", { ...TASK, kind: "task" }, ["result.kind"]],
    ["a misspelt member", { ...TASK, artefacts: [] }, ["result.artefacts"]],
    ["a member in a list", { ...TASK, history: [{ ...MESSAGE, role: "ROLE_USER", sender: 1 }] }, ["result.history[0].sender"]],
    ["a name that every object inherits", { ...TASK, constructor: 1 }, ["result.constructor"]],
    ["no member of metadata, which may have any members", { ...TASK, metadata: { any: { thing: 1 } } }, []],
  ])("in a response: %s", (_, result, unknown) => {
    expect(checkResponse("1.0", "GetTask", response(result), false)?.unknown).toEqual(unknown);
  });

  it("even a member with the name `?`, which the definition uses for choices", () => {
    expect(checkResponse("1.0", "SendMessage", response({ task: TASK, "?": 1 }), false)?.unknown).toEqual(["result.?"]);
  });

  it("in a part of 0.3, by its kind", () => {
    const parts = [{ kind: "text", text: "x", mimeType: "text/plain" }];
    const message = { kind: "message", messageId: "m", role: "agent", parts };
    expect(checkResponse("0.3", "message/send", response(message), false)).toEqual({
      errors: [],
      unknown: ["result.parts[0].mimeType"],
    });
  });

  it("in an error, and in each frame", () => {
    const error = { code: 1, message: "x", hint: "y" };
    const body = `data: ${response({ task: TASK })}\n\ndata: ${response(undefined, { error })}\n\n`;
    expect(checkResponse("1.0", "SendStreamingMessage", body, true)?.unknown).toEqual(["frame 2: error.hint"]);
  });
});

const CARD = {
  name: "n",
  description: "d",
  version: "1",
  capabilities: {},
  defaultInputModes: [],
  defaultOutputModes: [],
  skills: [{ id: "s", name: "S", description: "d", tags: [] }],
};
const V1_MEMBERS = { supportedInterfaces: [{ url: "https://a.example", protocolBinding: "JSONRPC", protocolVersion: "1.0" }] };
const V03_MEMBERS = { url: "https://a.example", protocolVersion: "0.3.0" };

describe("cards are checked against the versions whose format they have", () => {
  it.each<[string, object, string[], string[]]>([
    ["1.0", { ...CARD, ...V1_MEMBERS }, [], []],
    ["0.3", { ...CARD, ...V03_MEMBERS }, [], []],
    ["both", { ...CARD, ...V1_MEMBERS, ...V03_MEMBERS }, [], []],
    ["neither", CARD, ["1.0: card.supportedInterfaces: is missing"], []],
    ["1.0 without tags", { ...CARD, ...V1_MEMBERS, skills: [{ id: "s", name: "S", description: "d" }] }, ["1.0: card.skills[0].tags: is missing"], []],
    ["both, with a wrong list", { ...CARD, ...V1_MEMBERS, ...V03_MEMBERS, skills: 5 }, ["1.0: card.skills: list expected, not 5", "0.3: card.skills: list expected, not 5"], []],
    ["both, with a member of neither", { ...CARD, ...V1_MEMBERS, ...V03_MEMBERS, colour: "red" }, [], ["card.colour"]],
    ["1.0, with a member of 0.3", { ...CARD, ...V1_MEMBERS, preferredTransport: "JSONRPC" }, [], ["card.preferredTransport"]],
  ])("%s", (_, card, errors, unknown) => {
    expect(checkCard(card)).toEqual({ errors, unknown });
  });

  it("even a value that is not an object", () => {
    expect(checkCard([])).toEqual({ errors: ["not a JSON object"], unknown: [] });
  });
});
