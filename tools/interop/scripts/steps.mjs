// Run the steps of a client and print what the client's user sees. Counterpart of steps.py.

import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, lockedUrl] = process.argv.slice(2);

export const require = createRequire(join(folder, "package.json"));

// The URL of an agent that needs a key, which the client does not have.
export const LOCKED_URL = lockedUrl;

// The text of the error that a call throws.
export async function errorText(call) {
  return call.then((result) => `no error, but ${result}`, (error) => error.message);
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
