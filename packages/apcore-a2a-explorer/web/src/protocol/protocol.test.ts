import { describe, expect, it } from "vitest";
import { badgesOf, readCard, takesFiles } from "./card";
import { fieldErrors, RpcError } from "./errors";
import { fold } from "./fold";
import { partOf } from "./parts";
import { progressOf } from "./progress";
import { approvalAnswer, questionOf } from "./question";
import type { Json, StreamEvent, Task, TaskState } from "./types";

const ids = { taskId: "t", contextId: "c" };
const status = (state: TaskState, text?: string): StreamEvent => ({
  kind: "status",
  ...ids,
  status: text
    ? { state, message: { messageId: text, role: "agent", parts: [{ text }] } }
    : { state },
});
const chunk = (n: number, append: boolean): StreamEvent => ({
  kind: "artifact",
  ...ids,
  artifact: { artifactId: "a", parts: [{ data: n }] },
  append,
  lastChunk: false,
});
const taskAfter = (events: StreamEvent[]) => events.reduce<Task | null>(fold, null)!;

describe("a task", () => {
  it("is built from its events", () => {
    const task = taskAfter([status("working"), chunk(1, false), chunk(2, true), status("completed")]);
    expect(task.status.state).toBe("completed");
    expect(task.artifacts[0]!.parts.map((part) => part.data)).toEqual([1, 2]);
  });

  it("replaces an artifact when a chunk does not append", () => {
    expect(taskAfter([chunk(1, false), chunk(2, false)]).artifacts[0]!.parts).toHaveLength(1);
  });

  it("moves a replaced status message to the history, once", () => {
    const task = taskAfter([status("input-required", "Which?"), status("working"), status("completed")]);
    expect(task.history.map((message) => message.messageId)).toEqual(["Which?"]);
  });

  it("leaves its events unchanged", () => {
    const event = chunk(1, false);
    taskAfter([event, chunk(2, true)]);
    expect(event.kind === "artifact" && event.artifact.parts).toHaveLength(1);
  });
});

describe("an error", () => {
  it("has field errors in 1.0", () => {
    const data: Json = [
      { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason: "X" },
      { "@type": "type.googleapis.com/google.rpc.BadRequest", fieldViolations: [{ field: "a.b", description: "no" }] },
    ];
    expect(fieldErrors(new RpcError(-32602, "x", data))).toEqual([{ field: "a.b", message: "no" }]);
  });

  it("has field errors in 0.3", () => {
    const data = { errors: [{ field: "a", code: "type", message: "no" }] };
    expect(fieldErrors(new RpcError(-32602, "x", data))).toEqual([{ field: "a", message: "no" }]);
  });

  it("may have no field errors", () => {
    expect(fieldErrors(new RpcError(-32602, "x"))).toEqual([]);
    expect(fieldErrors(new Error("x"))).toEqual([]);
  });
});

describe("a question", () => {
  const paused = (data: object): Task => ({
    id: "t",
    contextId: "c",
    artifacts: [],
    history: [],
    status: {
      state: "input-required",
      message: { messageId: "m", role: "agent", parts: [{ text: "Well?" }, { data: data as never }] },
    },
  });

  it("may ask for approval", () => {
    const question = questionOf(paused({ approval: { id: "q", arguments: { path: "x" } } }))!;
    expect(question).toMatchObject({ kind: "approval", text: "Well?", arguments: { path: "x" } });
    expect(approvalAnswer(question, false, "later")).toEqual({ approved: false, approvalId: "q", comment: "later" });
  });

  it("may have choices", () => {
    const numbers = questionOf(paused({ input: { choices: [2, 4], data: {} } }));
    expect(numbers).toMatchObject({ kind: "input", choices: ["2", "4"] });
    const question = questionOf(paused({ input: { data: { choices: ["a", "b"] } } }));
    expect(question).toMatchObject({ kind: "input", choices: ["a", "b"] });
  });

  it("exists only for a paused task", () => {
    expect(questionOf(taskAfter([status("completed")]))).toBeNull();
  });
});

describe("a card", () => {
  const uri = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1";
  const card = readCard({
    name: "A",
    capabilities: {
      streaming: true,
      extensions: [{ uri, params: { skills: { s: { annotations: { destructive: true }, inputSchema: { properties: { bytes: {}, mimeType: {} } } } } } }],
    },
    skills: [{ id: "s", name: "S" }, { id: "constructor" }],
    securitySchemes: {
      bearer: { type: "http", scheme: "bearer" },
      key: { apiKeySecurityScheme: { location: "header", name: "X-Key" } },
    },
    security: [{ bearer: [] }],
  });

  it("has the skills' details from the extension", () => {
    expect(badgesOf(card.skills[0]!)).toEqual([{ label: "destructive", tone: "danger" }]);
    expect(takesFiles(card.skills[0]!)).toBe(true);
    expect(card.skills[1]!.inputSchema).toBeUndefined();
  });

  it("has security schemes in the formats of both versions", () => {
    expect(card.schemes).toMatchObject([{ kind: "bearer" }, { kind: "apiKey", keyName: "X-Key", location: "header" }]);
    expect(card.security).toEqual([["bearer"]]);
  });
});

it("input is data if it is a JSON object or array", () => {
  expect(partOf('{"a":1}')).toEqual({ data: { a: 1 } });
  expect(partOf("[1]")).toEqual({ data: [1] });
  expect(partOf("12")).toEqual({ text: "12" });
  expect(partOf("no")).toEqual({ text: "no" });
});

it("a progress report is read, but the task does not keep its message", () => {
  const report = { ...status("working", "half"), metadata: { apcore: { progress: true } } } as StreamEvent;
  expect(progressOf(report)).toEqual({ fraction: undefined, label: "half" });
  expect(taskAfter([status("working", "Please wait"), report]).status.message?.messageId).toBe("Please wait");
  const task = taskAfter([status("working"), report, report, status("completed", "done")]);
  expect(task.status.message?.messageId).toBe("done");
  expect(task.history).toEqual([]);
});

it("progress is read from status messages and metadata", () => {
  expect(progressOf({ ...status("working", "half"), metadata: { progress: 0.5 } } as StreamEvent)).toEqual({ fraction: 0.5, label: "half" });
  expect(progressOf({ ...status("working"), metadata: { progress: { current: 3, total: 4 } } } as StreamEvent)?.fraction).toBe(0.75);
  expect(progressOf(status("completed"))).toBeNull();
});
