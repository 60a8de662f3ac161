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

function ask(skill, content, { taskId, blocking = true } = {}) {
  const part =
    typeof content === "string" ? { kind: "text", text: content } : { kind: "data", data: content };
  return {
    message: { kind: "message", messageId: randomUUID(), role: "user", parts: [part], taskId },
    configuration: { blocking },
    metadata: skill && { skillId: skill },
  };
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function refusal(attempt) {
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

const task = await client.sendMessage(ask("markdown.html", "# Tea"));
const again = await client.getTask({ id: task.id });
report("send", { state: task.status.state, output: output(task), same: again.id === task.id });

const numbers = await client.sendMessage(ask("test.echo", { n: 2 ** 53, half: 0.5 }));
report("numbers", { output: output(numbers) });

const events = await all(client.sendMessageStream(ask("text.stats", "To be\n\nor not")));
report("stream", { kinds: events.map((event) => event.kind), state: events.at(-1).status.state });

const slow = await client.sendMessage(ask("jobs.countdown", { seconds: 300 }, { blocking: false }));
const canceled = await client.cancelTask({ id: slow.id });
report("cancel", { before: slow.status.state, after: canceled.status.state });

const gate = randomUUID();
const waiting = await client.sendMessage(ask("test.wait", { gate }, { blocking: false }));
const stream = client.resubscribeTask({ id: waiting.id });
const first = (await stream.next()).value;
await client.sendMessage(ask("test.open", { gate }));
const rest = await all(stream);
report("resubscribe", {
  kinds: [first, ...rest].map((event) => event.kind),
  state: rest.at(-1).status.state,
  output: output(await client.getTask({ id: waiting.id })).opened === gate,
});

const paused = await client.sendMessage(ask("files.delete", { path: "none.txt" }));
const answered = await client.sendMessage(ask(undefined, "no", { taskId: paused.id }));
report("approve", {
  before: paused.status.state,
  after: answered.status.state,
  same: paused.id === answered.id,
});

report("error", {
  names: [
    await refusal(client.sendMessage(ask("no.such", {}))),
    await refusal(client.sendMessageStream(ask("no.such", {})).next()),
    await refusal(client.sendMessage(ask("csv.summary", { text: 5 }))),
    await refusal(client.getTask({ id: "no-such" })),
  ],
});
