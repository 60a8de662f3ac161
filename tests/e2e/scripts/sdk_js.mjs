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
const state = (of) => taskStateToJSON(of.status.state).replace("TASK_STATE_", "").toLowerCase();
const output = (task) => task.artifacts[0].parts[0].content.value;

function ask(skill, content, { taskId, wait = true } = {}) {
  const part = typeof content === "string" ? { text: content } : { data: content };
  return SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: "ROLE_USER", parts: [part], taskId },
    configuration: { returnImmediately: !wait },
    metadata: skill && { skillId: skill },
  });
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

async function refusal(attempt) {
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

const task = await client.sendMessage(ask("markdown.html", "# Tea"));
const again = await client.getTask({ id: task.id, tenant: "" });
report("send", { state: state(task), output: output(task), same: again.id === task.id });

const numbers = await client.sendMessage(ask("test.echo", { n: 2 ** 53, half: 0.5 }));
report("numbers", { output: output(numbers) });

const events = await all(client.sendMessageStream(ask("text.stats", "To be\n\nor not")));
report("stream", {
  kinds: events.map((event) => event.$case),
  state: state(events.at(-1).value),
});

const slow = await client.sendMessage(ask("jobs.countdown", { seconds: 300 }, { wait: false }));
const canceled = await client.cancelTask({ id: slow.id, tenant: "" });
report("cancel", { before: state(slow), after: state(canceled) });

const gate = randomUUID();
const waiting = await client.sendMessage(ask("test.wait", { gate }, { wait: false }));
const stream = client.resubscribeTask({ id: waiting.id, tenant: "" });
const first = (await stream.next()).value.payload;
await client.sendMessage(ask("test.open", { gate }));
const rest = await all(stream);
report("resubscribe", {
  kinds: [first, ...rest].map((event) => event.$case),
  state: state(rest.at(-1).value),
  output: output(await client.getTask({ id: waiting.id, tenant: "" })).opened === gate,
});

const paused = await client.sendMessage(ask("files.delete", { path: "none.txt" }));
const answered = await client.sendMessage(ask(undefined, "no", { taskId: paused.id }));
report("approve", { before: state(paused), after: state(answered), same: paused.id === answered.id });

report("error", {
  names: [
    await refusal(client.sendMessage(ask("no.such", {}))),
    await refusal(client.sendMessageStream(ask("no.such", {})).next()),
    await refusal(client.sendMessage(ask("csv.summary", { text: 5 }))),
    await refusal(client.getTask({ id: "no-such", tenant: "" })),
  ],
});
