import { describe, expect, it } from "vitest";
import { HttpError, isBusy, RpcError } from "./errors";

describe("whether an error means that the agent is busy", () => {
  it.each([
    [new RpcError(-32029, "Too many requests"), true],
    [new RpcError(-32603, "Internal error"), false],
    [new HttpError(429, "Too many requests"), true],
    [new HttpError(503, "Service unavailable"), true],
    [new HttpError(502, "Bad gateway"), false],
    [new TypeError("failed"), false],
  ])("%s", (error, expected) => {
    expect(isBusy(error)).toBe(expected);
  });
});
