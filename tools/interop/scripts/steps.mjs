// Run the steps of a client and print what its user sees, as steps.py does.

import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, locked] = process.argv.slice(2);

export const require = createRequire(join(folder, "package.json"));

// The URL of an agent that needs a key, which the client does not have.
export const LOCKED = locked;

// The text of the error that a call throws.
export async function errorText(call) {
  return call.then((result) => `no error, but ${result}`, (refusal) => refusal.message);
}

export async function run(...steps) {
  for (const step of steps) {
    let result;
    try {
      result = { seen: await step(url) };
    } catch (error) {
      result = { failed: error.stack };
    }
    console.log(JSON.stringify({ step: step.name, ...result }));
  }
}
