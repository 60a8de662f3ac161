// Use an agent with the JavaScript SDK for A2A 0.3; print one JSON line for each step.
// Arguments: the folder with the packages, the transport, and the agent's URL.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, transport, url] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { ClientFactory, ClientFactoryOptions } = require("sdk-v03/client");

const report = (step, result) => console.log(JSON.stringify({ step, ...result }));
const output = (task) => task.artifacts[0].parts[0].data;

function messageTo(skill, content, { taskId, blocking = true } = {}) {
  const part =
    typeof content === "string" ? { kind: "text", text: content } : { kind: "data", data: content };
  return {
    message: { kind: "message", messageId: randomUUID(), role: "user", parts: [part], taskId },
    configuration: { blocking },
    metadata: skill && { skillId: skill },
  };
}

async function eventsOf(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function errorName(attempt) {
  try {
    await attempt;
  } catch (error) {
    return error.name;
  }
}

const options = { ...ClientFactoryOptions.default, preferredTransports: [transport] };
const client = await new ClientFactory(options).createFromUrl(url);
const card = await client.getAgentCard();
report("card", {
  url: card.url,
  version: card.protocolVersion,
  streaming: card.capabilities.streaming,
  skills: card.skills.map((skill) => skill.id),
});

const task = await client.sendMessage(messageTo("markdown.html", "# Tea"));
const fetched = await client.getTask({ id: task.id });
report("send", { state: task.status.state, output: output(task), same: fetched.id === task.id });

const echoed = await client.sendMessage(messageTo("test.echo", { n: 2 ** 53, half: 0.5 }));
report("numbers", { output: output(echoed) });

const events = await eventsOf(client.sendMessageStream(messageTo("text.stats", "To be\n\nor not")));
report("stream", { kinds: events.map((event) => event.kind), state: events.at(-1).status.state });

const slow = await client.sendMessage(messageTo("jobs.countdown", { seconds: 300 }, { blocking: false }));
const canceled = await client.cancelTask({ id: slow.id });
report("cancel", { before: slow.status.state, after: canceled.status.state });

const gate = randomUUID();
const waitingTask = await client.sendMessage(messageTo("test.wait", { gate }, { blocking: false }));
const stream = client.resubscribeTask({ id: waitingTask.id });
const first = (await stream.next()).value;
await client.sendMessage(messageTo("test.open", { gate }));
const rest = await eventsOf(stream);
report("resubscribe", {
  kinds: [first, ...rest].map((event) => event.kind),
  state: rest.at(-1).status.state,
  output: output(await client.getTask({ id: waitingTask.id })).opened === gate,
});

const paused = await client.sendMessage(messageTo("files.delete", { path: "none.txt" }));
const resumed = await client.sendMessage(messageTo(undefined, "no", { taskId: paused.id }));
report("approve", {
  before: paused.status.state,
  after: resumed.status.state,
  same: paused.id === resumed.id,
});

report("error", {
  names: [
    await errorName(client.sendMessage(messageTo("no.such", {}))),
    await errorName(client.sendMessageStream(messageTo("no.such", {})).next()),
    await errorName(client.sendMessage(messageTo("csv.summary", { text: 5 }))),
    await errorName(client.getTask({ id: "no-such" })),
  ],
});
