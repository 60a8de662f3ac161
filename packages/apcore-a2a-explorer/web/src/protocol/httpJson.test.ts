import { describe, expect, it } from "vitest";
import { bindingOf, jsonRpc } from "./binding";
import { interfaceOf, readCard, unsupportedReason } from "./card";
import { asCurl, asJavaScript, asJson, asPython } from "./copy";
import { httpJson } from "./httpJson";
import { parseJson } from "./json";
import type { JsonObject, Operation } from "./types";
import { v03 } from "./v03";
import { v1 } from "./v1";

const send: Operation = {
  name: "send",
  message: {
    messageId: "m",
    role: "user",
    parts: [{ text: "hi" }, { data: { n: 1 } }, { raw: "QQ==", filename: "a.txt", mediaType: "text/plain" }],
  },
  metadata: { skillId: "s" },
  options: { returnImmediately: true, push: { url: "https://example.com/" } },
};
const get: Operation = { name: "get", id: "a/b c" };
const setPush: Operation = { name: "setPush", taskId: "t", config: { id: "w", url: "https://example.com/" } };
const body = (source: { body: string }) => parseJson(source.body) as JsonObject;

describe("HTTP+JSON of 1.0", () => {
  const binding = httpJson("1.0");
  const wire = (operation: Operation) => binding.request(v1, operation, 1);

  it("sends the JSON-RPC params of a message as the body", () => {
    expect(wire(send)).toMatchObject({ verb: "POST", path: "/message:send" });
    expect(body(wire(send))).toEqual(v1.request(send).params);
  });

  it("sends ids in the path and filters in the query", () => {
    expect(wire(get)).toEqual({ verb: "GET", path: "/tasks/a%2Fb%20c", body: "" });
    expect(wire({ name: "cancel", id: "t" })).toEqual({ verb: "POST", path: "/tasks/t:cancel", body: "" });
    expect(wire({ name: "list", query: { contextId: "c d", pageSize: 5 } }).path).toBe(
      "/tasks?contextId=c+d&historyLength=0&pageSize=5",
    );
    expect(wire({ name: "deletePush", taskId: "t", id: "w" })).toMatchObject({
      verb: "DELETE",
      path: "/tasks/t/pushNotificationConfigs/w",
    });
    expect(wire(setPush).path).toBe("/tasks/t/pushNotificationConfigs");
    expect(body(wire(setPush))).toEqual({ id: "w", url: "https://example.com/" });
  });

  it("begins the path with the tenant", () => {
    expect(httpJson("1.0", "a b").request(v1, get, 1).path).toBe("/a%20b/tasks/a%2Fb%20c");
  });

  it("reads the JSON-RPC code from the reason or the gRPC status of an error", () => {
    const info = { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason: "TASK_NOT_FOUND" };
    const known = { error: { code: 404, status: "NOT_FOUND", message: "no", details: [info] } };
    expect(binding.error(known, 404, 3)).toMatchObject({ code: -32001, message: "no", retryAfter: 3 });
    const invalid = { error: { code: 400, status: "INVALID_ARGUMENT", message: "bad" } };
    expect(binding.error(invalid, 400, 0)).toMatchObject({ code: -32602 });
    expect(binding.error({ error: { message: "x" } }, 500, 0)).toMatchObject({ code: -32603 });
    expect(binding.error({ detail: "a page of a proxy" }, 502, 0)).toBeUndefined();
  });
});

describe("HTTP+JSON of 0.3", () => {
  const binding = httpJson("0.3");
  const wire = (operation: Operation) => binding.request(v03, operation, 1);
  const message = {
    messageId: "m2",
    role: "ROLE_AGENT",
    content: [{ text: "hi" }, { data: { data: { n: 1 } } }, { file: { fileWithBytes: "QQ==", mimeType: "a/b" } }],
  };

  it("sends the JSON of the protocol buffers", () => {
    expect(wire(send)).toMatchObject({ verb: "POST", path: "/v1/message:send" });
    expect(body(wire(send))).toEqual({
      message: {
        messageId: "m",
        role: "ROLE_USER",
        content: [
          { text: "hi" },
          { data: { data: { n: 1 } } },
          { file: { fileWithBytes: "QQ==", name: "a.txt", mimeType: "text/plain" } },
        ],
      },
      metadata: { skillId: "s" },
      configuration: { blocking: false, pushNotification: { url: "https://example.com/" } },
    });
    expect(body(wire(setPush))).toEqual({
      parent: "tasks/t",
      configId: "w",
      config: {
        name: "tasks/t/pushNotificationConfigs/w",
        pushNotificationConfig: { id: "w", url: "https://example.com/" },
      },
    });
    expect(wire({ name: "extendedCard" }).path).toBe("/v1/card");
  });

  it("reads a task with its messages, artifacts and state", () => {
    const task = {
      id: "t",
      contextId: "c",
      status: { state: "TASK_STATE_CANCELLED", message },
      artifacts: [{ artifactId: "a", parts: [{ data: { data: { n: 1 } } }] }],
      history: [message],
    };
    const result = v03.task(binding.result(send, { task }));
    expect(result.status.state).toBe("canceled");
    expect(result.status.message).toMatchObject({ role: "agent", parts: [{ text: "hi" }, { data: { n: 1 } }, { raw: "QQ==", mediaType: "a/b" }] });
    expect(result.artifacts[0]!.parts).toMatchObject([{ data: { n: 1 } }]);
    expect(result.history[0]!.parts).toHaveLength(3);
    expect(v03.task(binding.result(get, task)).id).toBe("t");
    expect(v03.page(binding.result({ name: "list", query: {} }, { tasks: [task] })).tasks[0]!.status.state).toBe("canceled");
  });

  it("reads the events of a stream", () => {
    const ids = { taskId: "t", contextId: "c" };
    const sources = [
      { task: { id: "t", status: { state: "TASK_STATE_SUBMITTED" } } },
      { statusUpdate: { ...ids, status: { state: "TASK_STATE_WORKING" } } },
      { artifactUpdate: { ...ids, append: true, artifact: { artifactId: "a", parts: [{ data: { data: { n: 1 } } }] } } },
      { msg: message },
    ];
    const events = sources.map((source) => v03.event(binding.result(send, source)));
    expect(events.map(({ kind }) => kind)).toEqual(["task", "status", "artifact", "message"]);
    expect(events[1]).toMatchObject({ status: { state: "working" }, taskId: "t" });
    expect(events[2]).toMatchObject({ append: true, artifact: { parts: [{ data: { n: 1 } }] } });
  });

  it("reads push configs", () => {
    const configs = [{ name: "tasks/t/pushNotificationConfigs/w", pushNotificationConfig: { id: "w", url: "https://a/" } }];
    const result = v03.pushConfigs(binding.result({ name: "listPush", taskId: "t" }, { configs }));
    expect(result).toMatchObject([{ id: "w", taskId: "t", url: "https://a/" }]);
  });

  it("reads the code of an error from the body, or else from the HTTP status", () => {
    expect(binding.error({ code: -32004, message: "no" }, 501, 0)).toMatchObject({ code: -32004 });
    expect(binding.error({ message: "Task not found" }, 404, 0)).toMatchObject({ code: -32001 });
  });
});

describe("JSON-RPC", () => {
  it("names the tenant of the interface in the params", () => {
    expect(body(jsonRpc("a").request(v1, get, 7))).toEqual({
      jsonrpc: "2.0",
      id: 7,
      method: "GetTask",
      params: { tenant: "a", id: "a/b c" },
    });
  });
});

describe("the chosen interface of a card", () => {
  const rest = { url: "https://a/rest", protocolBinding: "HTTP+JSON", protocolVersion: "1.0", tenant: "x" };
  const rpc = { url: "https://a/", protocolBinding: "JSONRPC", protocolVersion: "1.0" };
  const grpc = { url: "https://a:443", protocolBinding: "GRPC", protocolVersion: "1.0" };
  const cardOf = (...supportedInterfaces: JsonObject[]) => readCard({ name: "a", supportedInterfaces });

  it("is the JSON-RPC interface, or else the HTTP+JSON interface", () => {
    expect(interfaceOf(cardOf(grpc, rest, rpc), "1.0")).toMatchObject({ binding: "JSONRPC", tenant: "" });
    expect(interfaceOf(cardOf(grpc, rest), "1.0")).toMatchObject({ url: "https://a/rest", tenant: "x" });
    expect(interfaceOf(cardOf(rest), "0.3")).toBeUndefined();
  });

  it("may be an additional interface in 0.3", () => {
    const additionalInterfaces = [{ url: "https://a/v1", transport: "GRPC" }, { url: "https://a/", transport: "HTTP+JSON" }];
    const card = readCard({ name: "a", url: "https://a/v1", preferredTransport: "GRPC", protocolVersion: "0.3.0", additionalInterfaces });
    expect(card.interfaces).toHaveLength(2);
    expect(interfaceOf(card, "0.3")).toMatchObject({ url: "https://a/", binding: "HTTP+JSON" });
  });

  it("is reported missing, with a list of the bindings on the card", () => {
    expect(interfaceOf(cardOf(grpc), "1.0")).toBeUndefined();
    expect(unsupportedReason(cardOf(grpc), "1.0")).toContain("Its card lists GRPC of A2A 1.0.");
  });

  it("is used in copied requests", () => {
    const chosen = interfaceOf(cardOf(rest), "1.0")!;
    const target = { url: chosen.url, agentUrl: "https://a/", binding: bindingOf(chosen) };
    expect(asCurl(v1, get, target)).toBe("curl -s 'https://a/rest/x/tasks/a%2Fb%20c' \\\n  -H 'A2A-Version: 1.0'");
    expect(asCurl(v1, { name: "cancel", id: "t" }, target)).toContain("-X POST 'https://a/rest/x/tasks/t:cancel'");
    expect(asCurl(v1, send, target)).toContain("curl -s 'https://a/rest/x/message:send'");
    expect(asJson(v1, get, target)).toBe("GET https://a/rest/x/tasks/a%2Fb%20c");
    expect(asJavaScript(v1, get, target)).toContain('method: "GET",');
    expect(asJavaScript(v1, get, target)).not.toContain("body:");
    expect(asPython(v1, get, target)).toContain('SyncA2AClient("https://a/", protocol="1.0")');
  });
});
