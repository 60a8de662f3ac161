import { expect, it } from "vitest";
import { counted } from "./counted";

it("a noun is in the singular only after a count of one", () => {
  expect([0, 1, 2].map((count) => counted(count, "part"))).toEqual(["0 parts", "1 part", "2 parts"]);
});
