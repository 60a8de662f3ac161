import { expect, test } from "vitest";
import { log, logRequest } from "./log";

test("the oldest contents are dropped once all contents exceed the limit", () => {
  for (let number = 0; number < 6; number++) {
    const logging = logRequest(null, "1.0");
    logging.piece("x".repeat(240_000));
    logging.piece("x".repeat(20_000)); // exceeds the limit of an entry
  }
  const sizes = log.value.map((entry) => entry.wire.size);
  expect(sizes).toEqual([240_000, 240_000, 240_000, 240_000, 0, 0]);
});
