import { describe, expect, it } from "vitest";
import { formatDuration } from "./times";

describe("durations have two units at most", () => {
  it.each([
    [-5, "0 ms"],
    [340, "340 ms"],
    [999.4, "999 ms"],
    [999.6, "1.0 s"],
    [4_000, "4.0 s"],
    [59_949, "59.9 s"],
    [59_960, "1 min 0 s"],
    [125_000, "2 min 5 s"],
    [3_600_000, "1 h 0 min"],
    [47 * 3_600_000 + 59_000, "47 h 0 min"],
    [49 * 3_600_000, "2 days 1 h"],
    [400 * 24 * 3_600_000, "400 days 0 h"],
  ])("%d", (milliseconds, shown) => {
    expect(formatDuration(milliseconds)).toBe(shown);
  });
});
