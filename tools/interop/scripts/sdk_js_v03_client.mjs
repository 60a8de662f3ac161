// Call the agent with the last SDK for JavaScript of A2A 0.3.

import { randomUUID } from "node:crypto";
import { LOCKED, errorText, require, run } from "./steps.mjs";

const { ClientFactory } = require("sdk-v03/client");

const client = (url) => new ClientFactory().createFromUrl(url);
const words = (parts) =>
  parts.flatMap((part) => (part.kind === "text" ? part.text : [])).join("\n");
const artifact = (task) => words(task.artifacts[0].parts);

function message(text, taskId) {
  const parts = [{ kind: "text", text }];
  return { message: { kind: "message", messageId: randomUUID(), role: "user", parts, taskId } };
}

async function ask(url, text, taskId) {
  return (await client(url)).sendMessage(message(text, taskId));
}

async function card(url) {
  const { name, skills } = await (await client(url)).getAgentCard();
  return [name, ...skills.map((skill) => skill.name)];
}

async function send(url) {
  return artifact(await ask(url, "hello"));
}

async function stream(url) {
  const pieces = [];
  const counting = await client(`${url}/count/`);
  for await (const event of counting.sendMessageStream(message("go"))) {
    if (event.kind === "artifact-update") pieces.push(words(event.artifact.parts));
  }
  return pieces;
}

async function question(url) {
  const paused = await ask(`${url}/table/`, "A table, please");
  const booked = await ask(`${url}/table/`, "friday", paused.id);
  return [words(paused.status.message.parts), artifact(booked)];
}

async function result(url) {
  return artifact(await ask(`${url}/price/`, "green tea"));
}

async function refusal(url) {
  const failedTask = await ask(`${url}/order/`, "50");
  const inputRefusal = await errorText(ask(`${url}/order/`, "many"));
  const taskFailure = words(failedTask.status.message.parts);
  return [taskFailure, inputRefusal, await errorText(ask(LOCKED, "hello"))];
}

await run(card, send, stream, question, result, refusal);
