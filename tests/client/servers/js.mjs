// Agent of @a2a-js/sdk on express. Arguments: the folder with the packages, the SDK (sdk-v1 or
// sdk-v03) and the port. The first word of a message selects the action: echo, count, slow, ask,
// fail. An answer to a question is echoed.

import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, sdk, port] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const express = require("express");
const { AgentCard, TaskState, AGENT_CARD_PATH } = require(sdk);
const server = require(`${sdk}/server`);
const routes = require(`${sdk}/server/express`);
const isV1 = sdk === "sdk-v1";
const url = `http://127.0.0.1:${port}/`;

const skill = { id: "echo", name: "Echo", description: "Echoes a text", tags: ["text"] };
const about = { name: sdk, description: "An agent of @a2a-js/sdk", version: "1", skills: [skill] };
const modes = { defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"] };
const interfaces = [{ url, protocolBinding: "JSONRPC", protocolVersion: "1.0" }];
const capabilities = { streaming: true, pushNotifications: false };
const card = isV1
  ? AgentCard.fromJSON({ ...about, ...modes, capabilities, supportedInterfaces: interfaces })
  : { ...about, ...modes, capabilities, url, protocolVersion: "0.3.0" };

const state = (name) =>
  isV1 ? TaskState[`TASK_STATE_${name.toUpperCase().replace("-", "_")}`] : name;
const text = (value) =>
  isV1
    ? { content: { $case: "text", value }, mediaType: "", filename: "", metadata: undefined }
    : { kind: "text", text: value };
const textOf = (part) => (isV1 ? part.content.value : part.text);
const canceled = new Set();

class Run {
  constructor({ userMessage, taskId, contextId }, bus) {
    Object.assign(this, { userMessage, taskId, contextId, bus });
    this.ids = { taskId, contextId };
  }
  publish(kind, event) {
    const made = { task: "task", status: "statusUpdate", artifact: "artifactUpdate" }[kind];
    const dashed = { task: "task", status: "status-update", artifact: "artifact-update" }[kind];
    this.bus.publish(isV1 ? server.AgentEvent[made](event) : { kind: dashed, ...event });
  }
  status(name, words) {
    const role = isV1 ? 2 : "agent"; // ROLE_AGENT
    const extra = isV1 ? { extensions: [], referenceTaskIds: [], metadata: undefined } : {};
    const kind = isV1 ? {} : { kind: "message" };
    const parts = [text(words ?? "")];
    const messageId = `${this.taskId}-${name}`;
    const message = words && { ...kind, ...this.ids, messageId, role, parts, ...extra };
    return { state: state(name), message, timestamp: new Date().toISOString() };
  }
  say(name, words) {
    const final = isV1 ? {} : { final: name !== "working" };
    this.publish("status", { ...this.ids, status: this.status(name, words), ...final });
  }
  chunk(words, append, lastChunk) {
    const extra = isV1 ? { extensions: [], name: "", description: "", metadata: undefined } : {};
    const artifact = { artifactId: "a", parts: [text(words)], ...extra };
    this.publish("artifact", { ...this.ids, artifact, append, lastChunk });
  }
  start() {
    const status = this.status("submitted");
    const history = [this.userMessage];
    const kind = isV1 ? {} : { kind: "task" };
    const task = { ...kind, id: this.taskId, contextId: this.contextId, status };
    this.publish("task", { ...task, history, artifacts: [], metadata: undefined });
    this.say("working");
  }
}

const executor = {
  async execute(context, bus) {
    const run = new Run(context, bus);
    const said = textOf(context.userMessage.parts[0]);
    const [word, ...rest] = said.split(" ");
    if (!context.task) run.start();
    else if (isV1) bus.publish(server.AgentEvent.task(context.task)); // the SDK requires a task first
    if (context.task) {
      run.chunk(`got: ${said}`, false, true);
      run.say("completed");
    } else if (word === "ask") run.say("input-required", "Which one?");
    else if (word === "fail") run.say("failed", "it broke");
    else {
      const end = Date.now() + 1000 * (word === "slow" ? Number(rest[0]) : 0);
      while (Date.now() < end && !canceled.has(context.taskId))
        await new Promise((done) => setTimeout(done, 20));
      const count = word === "count" ? Number(rest[0]) : 1;
      for (let n = 1; n <= count && !canceled.has(context.taskId); n++)
        run.chunk(word === "count" ? String(n) : rest.join(" "), n > 1, n === count);
      run.say(canceled.has(context.taskId) ? "canceled" : "completed");
    }
    bus.finished();
  },
  async cancelTask(taskId) {
    canceled.add(taskId);
  },
};

const requestHandler = new server.DefaultRequestHandler(card, new server.InMemoryTaskStore(), executor);
const userBuilder = routes.UserBuilder.noAuthentication;
const app = express();
const path = AGENT_CARD_PATH ?? ".well-known/agent-card.json";
app.use(`/${path}`, routes.agentCardHandler({ agentCardProvider: requestHandler }));
app.use("/", routes.jsonRpcHandler({ requestHandler, userBuilder }));
app.listen(Number(port), "127.0.0.1");
