import { expect, test } from "vitest";
import { readCard } from "./card";
import { firstLine, groupsOf, skillFilter } from "./groups";

const skillsOf = (...ids: string[]) =>
  readCard({ skills: ids.map((id) => ({ id, name: `Skill ${id}`, tags: ["math"] })) }).skills;

test("many skills are grouped by the first segment of their ids", () => {
  const ids = ["csv", "files"].flatMap((area) => Array.from({ length: 7 }, (_, n) => `${area}.${n}`));
  const groups = groupsOf(skillsOf("solo", ...ids));
  expect(groups.map(({ name, skills }) => [name, skills.length])).toEqual([
    ["solo", 1],
    ["csv", 7],
    ["files", 7],
  ]);
});

test("few skills, and skills without common segments, are not grouped", () => {
  expect(groupsOf(skillsOf("csv.sum", "csv.max", "files.read"))).toHaveLength(1);
  const different = Array.from({ length: 20 }, (_, n) => `area${n}.run`);
  expect(groupsOf(skillsOf(...different))[0]!.skills).toHaveLength(20);
  expect(groupsOf([])).toEqual([{ name: "", skills: [] }]);
});

test("skills match if they have all words of the query", () => {
  const ids = (query: string) => skillsOf("csv.sum", "files.read").filter(skillFilter(query)).map(({ id }) => id);
  expect(ids("CSV math")).toEqual(["csv.sum"]);
  expect(ids("csv read")).toEqual([]);
  expect(ids(" ")).toEqual(["csv.sum", "files.read"]);
});

test("a description is cut to its first line, without Markdown", () => {
  expect(firstLine("\n## Prices an **order** in `cents`, [as told](https://a.b/c)\n\nMore.")).toBe("Prices an order in cents, as told");
  expect(firstLine("")).toBe("");
});
