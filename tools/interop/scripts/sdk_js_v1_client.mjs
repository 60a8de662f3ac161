// Call the agent with the JavaScript SDK for A2A 1.0.

import { randomUUID } from "node:crypto";
import { LOCKED_URL, errorText, require, run } from "./steps.mjs";

const { ClientFactory } = require("sdk-v1/client");
const { SendMessageRequest } = require("sdk-v1");

const connect = (url) => new ClientFactory().createFromUrl(url);
const textOf = (parts) =>
  parts.flatMap(({ content }) => (content.$case === "text" ? content.value : [])).join("\n");
const artifactText = (task) => textOf(task.artifacts[0].parts);

function sendRequest(text, taskId) {
  const parts = [{ text }];
  return SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: "ROLE_USER", parts, taskId },
  });
}

async function ask(url, text, taskId) {
  return (await connect(url)).sendMessage(sendRequest(text, taskId));
}

async function card(url) {
  const { name, skills } = await (await connect(url)).getAgentCard();
  return [name, ...skills.map((skill) => skill.name)];
}

async function send(url) {
  return artifactText(await ask(url, "hello"));
}

async function stream(url) {
  const pieces = [];
  const counting = await connect(`${url}/count/`);
  for await (const { payload } of counting.sendMessageStream(sendRequest("go"))) {
    if (payload.$case === "artifactUpdate") pieces.push(textOf(payload.value.artifact.parts));
  }
  return pieces;
}

async function question(url) {
  const paused = await ask(`${url}/table/`, "A table, please");
  const booked = await ask(`${url}/table/`, "friday", paused.id);
  return [textOf(paused.status.message.parts), artifactText(booked)];
}

async function result(url) {
  return artifactText(await ask(`${url}/price/`, "green tea"));
}

async function refusal(url) {
  const failedTask = await ask(`${url}/order/`, "50");
  const inputRefusal = await errorText(ask(`${url}/order/`, "many"));
  const taskFailure = textOf(failedTask.status.message.parts);
  return [taskFailure, inputRefusal, await errorText(ask(LOCKED_URL, "hello"))];
}

await run(card, send, stream, question, result, refusal);
