// Serve a no-op agent with the JavaScript SDK on express, controlled like child.py: print {"port": ...}
// when the agent is up, and its state for each line of standard input. Stop when standard input ends.
// Argument: the folder with the packages. Further arguments, which are for Python, are ignored.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.argv[2], "package.json"));
const express = require("express");
const { AgentCard, TaskState } = require("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = require("@a2a-js/sdk/server");
const { UserBuilder, jsonRpcHandler } = require("@a2a-js/sdk/server/express");

const card = AgentCard.fromJSON({
  name: "js",
  description: "No-op",
  version: "1",
  supportedInterfaces: ["1.0", "0.3"].map((protocolVersion) => ({
    url: "http://127.0.0.1",
    protocolBinding: "JSONRPC",
    protocolVersion,
  })),
  capabilities: { streaming: true },
});

const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
const noop = {
  async execute({ userMessage, taskId, contextId }, bus) {
    const submitted = status(TaskState.TASK_STATE_SUBMITTED);
    const task = { id: taskId, contextId, status: submitted, artifacts: [] };
    bus.publish(AgentEvent.task({ ...task, history: [userMessage] }));
    const artifact = { artifactId: "a", parts: userMessage.parts, extensions: [] };
    const whole = { append: false, lastChunk: true };
    bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, ...whole }));
    const completed = status(TaskState.TASK_STATE_COMPLETED);
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: completed }));
    bus.finished();
  },
  async cancelTask() {},
};

const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), noop);
const userBuilder = UserBuilder.noAuthentication;
const app = express();
app.use("/", jsonRpcHandler({ requestHandler, userBuilder, legacyCompat: { enabled: true } }));

const report = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
const server = app.listen(0, "127.0.0.1", () => report({ port: server.address().port }));
createInterface({ input: process.stdin })
  .on("line", () => {
    const { user, system } = process.cpuUsage();
    const resident = process.memoryUsage.rss();
    report({ cpu: (user + system) / 1e6, resident, tasks: {}, writes: 0, reads: 0 });
  })
  .on("close", () => process.exit());
