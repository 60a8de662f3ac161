import { expect, it } from "vitest";
import { differentReasons } from "./reasons";

it("each reason is listed once, at most three of them", () => {
  expect(differentReasons(["a", "b", "a"])).toBe("a; b");
  expect(differentReasons(["a", "b", "a", "c", "d", "e"])).toBe("a; b; c; …");
});
