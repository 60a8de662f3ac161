import { describe, expect, it } from "vitest";
import type { Message, Operation } from "./types";
import { v03 } from "./v03";
import { v1 } from "./v1";

const message: Message = {
  messageId: "m1",
  role: "user",
  parts: [
    { text: "hi" },
    { data: { n: 1 } },
    { data: [1] },
    { raw: "QQ==", filename: "a.txt", mediaType: "text/plain" },
  ],
};
const send: Operation = {
  name: "send",
  message,
  metadata: { skillId: "s" },
  options: { returnImmediately: true, push: { url: "https://example.com/", token: "t" } },
};

describe("a message", () => {
  it("is sent in 1.0", () => {
    expect(v1.request(send)).toEqual({
      method: "SendMessage",
      params: {
        message: { messageId: "m1", role: "ROLE_USER", parts: message.parts },
        metadata: { skillId: "s" },
        configuration: {
          returnImmediately: true,
          taskPushNotificationConfig: { url: "https://example.com/", token: "t" },
        },
      },
    });
  });

  it("is sent in 0.3", () => {
    expect(v03.request(send)).toEqual({
      method: "message/send",
      params: {
        message: {
          kind: "message",
          messageId: "m1",
          role: "user",
          parts: [
            { kind: "text", text: "hi" },
            { kind: "data", data: { n: 1 } },
            { kind: "data", data: { value: [1] }, metadata: { data_part_compat: true } },
            { kind: "file", file: { bytes: "QQ==", name: "a.txt", mimeType: "text/plain" } },
          ],
        },
        metadata: { skillId: "s" },
        configuration: {
          blocking: false,
          pushNotificationConfig: { url: "https://example.com/", token: "t" },
        },
      },
    });
  });
});

describe("events", () => {
  const status = { state: "input-required", timestamp: "2026-01-01T00:00:00Z" };

  it("of a status are read alike from both versions", () => {
    const ids = { taskId: "t", contextId: "c" };
    const v1Event = { statusUpdate: { ...ids, status: { ...status, state: "TASK_STATE_INPUT_REQUIRED" } } };
    const v03Event = { kind: "status-update", ...ids, status, final: true };
    expect(v1.event(v1Event)).toMatchObject({ kind: "status", ...ids, status });
    expect(v03.event(v03Event)).toEqual(v1.event(v1Event));
  });

  it("of an artifact are read alike from both versions", () => {
    const ids = { taskId: "t", contextId: "c" };
    const v1Event = {
      artifactUpdate: { ...ids, append: true, artifact: { artifactId: "a", parts: [{ data: null }] } },
    };
    const v03Event = {
      kind: "artifact-update",
      ...ids,
      append: true,
      artifact: { artifactId: "a", parts: [{ kind: "data", data: null }] },
    };
    expect(v1.event(v1Event)).toMatchObject({ kind: "artifact", append: true, lastChunk: false });
    expect(v03.event(v03Event)).toEqual(v1.event(v1Event));
  });

  it("may be messages or tasks", () => {
    expect(v1.event({ message: { messageId: "m", role: "ROLE_AGENT", parts: [] } }).kind).toBe("message");
    expect(v03.event({ kind: "message", messageId: "m", role: "agent", parts: [] }).kind).toBe("message");
    expect(v1.event({ task: { id: "t" } })).toMatchObject({ kind: "task", task: { id: "t" } });
    expect(v03.event({ kind: "task", id: "t" })).toMatchObject({ kind: "task", task: { id: "t" } });
  });
});

describe("lists", () => {
  const list: Operation = {
    name: "list",
    query: { state: "auth-required", contextId: "c", pageSize: 5, pageToken: "p" },
  };

  it("are requested in each version's format", () => {
    expect(v1.request(list).params).toEqual({
      status: "TASK_STATE_AUTH_REQUIRED",
      contextId: "c",
      historyLength: 0,
      pageSize: 5,
      pageToken: "p",
    });
    expect(v03.request(list).params).toEqual({
      status: "auth-required",
      contextId: "c",
      historyLength: 0,
      limit: 5,
      cursor: "p",
    });
  });

  it("have a token for the next page", () => {
    expect(v1.page({ tasks: [], nextPageToken: "n", totalSize: 9 })).toEqual({ tasks: [], next: "n", total: 9 });
    expect(v03.page({ tasks: [{ id: "t" }], nextCursor: "n" })).toMatchObject({ next: "n", tasks: [{ id: "t" }] });
  });

  it("of webhooks are read from each version's format", () => {
    const config = { id: "1", url: "https://example.com/" };
    expect(v1.pushConfigs({ configs: [{ ...config, taskId: "t" }] })).toMatchObject([{ ...config, taskId: "t" }]);
    expect(v03.pushConfigs([{ taskId: "t", pushNotificationConfig: config }])).toMatchObject([config]);
  });
});
