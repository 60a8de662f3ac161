// Use an agent with the JavaScript SDK for A2A 1.0; print one JSON line for each step.
// Arguments: the folder with the packages, the binding, its version, and the agent's URL.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, binding, version, url] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } =
  require("sdk-v1/client");
const { Role, SendMessageRequest, taskStateToJSON } = require("sdk-v1");

const report = (step, result) => console.log(JSON.stringify({ step, ...result }));
const state = (event) => taskStateToJSON(event.status.state).replace("TASK_STATE_", "").toLowerCase();
const output = (task) => task.artifacts[0].parts[0].content.value;

function messageTo(skill, content, { taskId, wait = true } = {}) {
  const part = typeof content === "string" ? { text: content } : { data: content };
  return SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: "ROLE_USER", parts: [part], taskId },
    configuration: { returnImmediately: !wait },
    metadata: skill && { skillId: skill },
  });
}

async function eventsOf(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

async function errorName(attempt) {
  try {
    await attempt;
  } catch (error) {
    return error.name;
  }
}

const legacyCompat = { enabled: version === "0.3" };
const card = await new DefaultAgentCardResolver({ legacyCompat }).resolve(url);
card.supportedInterfaces = card.supportedInterfaces.filter(
  (offered) => offered.protocolBinding === binding && offered.protocolVersion === version,
);
const transports = [
  new JsonRpcTransportFactory({ legacyCompat }),
  new RestTransportFactory({ legacyCompat }),
];
const client = await new ClientFactory({ transports }).createFromAgentCard(card);
report("card", {
  url: card.supportedInterfaces[0].url,
  version: client.protocolVersion,
  streaming: card.capabilities.streaming,
  skills: card.skills.map((skill) => skill.id),
});

const task = await client.sendMessage(messageTo("markdown.html", "# Tea"));
const fetched = await client.getTask({ id: task.id, tenant: "" });
report("send", { state: state(task), output: output(task), same: fetched.id === task.id });

const echoed = await client.sendMessage(messageTo("test.echo", { n: 2 ** 53, half: 0.5 }));
report("numbers", { output: output(echoed) });

const events = await eventsOf(client.sendMessageStream(messageTo("text.stats", "To be\n\nor not")));
report("stream", {
  kinds: events.map((event) => event.$case),
  state: state(events.at(-1).value),
});

const slow = await client.sendMessage(messageTo("jobs.countdown", { seconds: 300 }, { wait: false }));
const canceled = await client.cancelTask({ id: slow.id, tenant: "" });
report("cancel", { before: state(slow), after: state(canceled) });

const gate = randomUUID();
const waitingTask = await client.sendMessage(messageTo("test.wait", { gate }, { wait: false }));
const stream = client.resubscribeTask({ id: waitingTask.id, tenant: "" });
const first = (await stream.next()).value.payload;
await client.sendMessage(messageTo("test.open", { gate }));
const rest = await eventsOf(stream);
report("resubscribe", {
  kinds: [first, ...rest].map((event) => event.$case),
  state: state(rest.at(-1).value),
  output: output(await client.getTask({ id: waitingTask.id, tenant: "" })).opened === gate,
});

const paused = await client.sendMessage(messageTo("files.delete", { path: "none.txt" }));
const resumed = await client.sendMessage(messageTo(undefined, "no", { taskId: paused.id }));
report("approve", { before: state(paused), after: state(resumed), same: paused.id === resumed.id });

report("error", {
  names: [
    await errorName(client.sendMessage(messageTo("no.such", {}))),
    await errorName(client.sendMessageStream(messageTo("no.such", {})).next()),
    await errorName(client.sendMessage(messageTo("csv.summary", { text: 5 }))),
    await errorName(client.getTask({ id: "no-such", tenant: "" })),
  ],
});
