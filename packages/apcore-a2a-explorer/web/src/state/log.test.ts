import { expect, test } from "vitest";
import { log, logRequest } from "./log";

test("the contents of the oldest requests are dropped once the log exceeds the limit", () => {
  for (let number = 0; number < 6; number++) {
    const recorder = logRequest(null, "1.0");
    recorder.piece("x".repeat(240_000));
    recorder.piece("x".repeat(20_000)); // exceeds the limit of an entry
  }
  const sizes = log.value.map((entry) => entry.wire.size);
  expect(sizes).toEqual([240_000, 240_000, 240_000, 240_000, 0, 0]);
});
