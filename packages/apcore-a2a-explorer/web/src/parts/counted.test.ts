import { expect, it } from "vitest";
import { counted } from "./counted";

it("a count has its noun in the singular for one only", () => {
  expect([0, 1, 2].map((count) => counted(count, "part"))).toEqual(["0 parts", "1 part", "2 parts"]);
});
