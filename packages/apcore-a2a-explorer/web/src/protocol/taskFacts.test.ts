import { expect, test } from "vitest";
import { durationOf, taskFacts } from "./taskFacts";
import type { Json, Task, TaskState } from "./types";

const taskOf = (state: TaskState, apcore: Json): Task => ({
  id: "t",
  contextId: "c",
  status: { state, timestamp: "2026-01-01T00:01:00Z" },
  artifacts: [],
  history: [],
  metadata: { apcore },
});

const earlierState = (state: string, second: number) => ({
  state,
  timestamp: `2026-01-01T00:00:${String(second).padStart(2, "0")}Z`,
  principal: "jwt|ada",
});

test("earlier states show the creation time, the principal and the attempts of a task", () => {
  const states = [earlierState("submitted", 0), earlierState("working", 1), earlierState("working", 30)];
  const task = taskOf("completed", { stateHistory: states });
  const { createdAt, ...facts } = taskFacts(task);
  expect(facts).toEqual({ principal: "jwt|ada", attempts: 2, decisions: [] });
  expect(new Date(createdAt!).toISOString()).toBe("2026-01-01T00:00:00.000Z");
  expect(durationOf(task, 0)).toBe(60_000);
});

test("a task without a creation time has a duration only while it runs", () => {
  const now = Date.parse("2026-01-01T00:03:00Z");
  expect(durationOf(taskOf("completed", {}), now)).toBeUndefined();
  expect(durationOf(taskOf("working", {}), now)).toBe(120_000);
  expect(durationOf(taskOf("working", {}), 0)).toBe(0);
});

test("decisions are read, and malformed members are left out", () => {
  const decisions: Json[] = [{ principal: "bob", act: "approved", timestamp: "2026-01-01T00:00:00Z" }, "no", { act: 7 }];
  expect(taskFacts(taskOf("working", { decisions, principal: 7, stateHistory: "no" }))).toEqual({
    decisions: [decisions[0], { principal: "", act: "" }],
  });
});

test("the creation time can be reported without earlier states", () => {
  const task = taskOf("working", { createdAt: "2026-01-01T00:00:00.000Z" });
  expect(durationOf(task, Date.parse("2026-01-01T00:00:09.000Z"))).toBe(9_000);
});
