// Run the steps of a client and print what its user sees, as steps.py does.

import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url] = process.argv.slice(2);

export const require = createRequire(join(folder, "package.json"));

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
