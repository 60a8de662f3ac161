import type { Skill } from "./card";

const MAX_UNGROUPED = 12; // skills

export interface Group {
  /** The first segment of the ids; empty if the skills are not grouped. */
  name: string;
  skills: Skill[];
}

/** Group skills, if there are many, by the first segment of their ids: `csv` of `csv.summary`. */
export function groupsOf(skills: Skill[]): Group[] {
  const groups = new Map<string, Skill[]>();
  for (const skill of skills) {
    const name = skill.id.split(".", 1)[0]!;
    groups.set(name, [...(groups.get(name) ?? []), skill]);
  }
  const isUseful = skills.length > MAX_UNGROUPED && groups.size > 1 && groups.size < skills.length;
  if (!isUseful) return [{ name: "", skills }];
  return [...groups].map(([name, members]) => ({ name, skills: members }));
}

type SearchableSkill = Pick<Skill, "id" | "name" | "description" | "tags">;

/** A filter for skills with all words of *query* in their id, name, description or tags. */
export function skillFilter(query: string): (skill: SearchableSkill) => boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return (skill) => {
    const text = [skill.id, skill.name, skill.description, ...skill.tags].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
}

/** The first line of a Markdown description, as plain text. */
export function firstLine(description: string): string {
  const line = description.split("\n").find((candidate) => candidate.trim()) ?? "";
  const links = /!?\[([^\]]*)\]\([^)]*\)/g;
  return line.replace(/^[\s#>*-]+/, "").replace(links, "$1").replace(/(\*\*|__|`)/g, "").trim();
}
