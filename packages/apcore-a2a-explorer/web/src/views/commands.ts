/** The commands of the palette. */

import type { Skill } from "../protocol/card";
import { skillFilter } from "../protocol/groups";
import { card } from "../state/agent";
import { credentials, signingIn } from "../state/credentials";
import { apcoreViews } from "../state/access";
import { go, href } from "../state/route";
import { histories } from "../state/runs";
import { theme, version } from "../state/settings";
import { inbox } from "../state/tasks";
import { skillOf } from "../protocol/taskFacts";
import { signOut } from "./Session";

export interface Command {
  kind: "Task" | "Skill" | "View" | "Action";
  label: string;
  /** Shown after the label, such as an id. */
  detail?: string;
  run: () => void;
}

const MAX_SKILLS = 8;
const MAX_TASKS = 5;
const MIN_ID_LENGTH = 6; // characters; shorter texts match only known tasks

/** The commands that match *query*, best first. */
export function commandsFor(query: string): Command[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = ({ label }: Command) => words.every((word) => label.toLowerCase().includes(word));
  const [known, guessed] = tasks(query.trim());
  return [...known, ...skills(query), ...guessed, ...[...views(), ...actions()].filter(matches)];
}

/**
 * The skills that match *query*: first those whose name or id begins with it, then those that match
 * by name and id alone, then the rest.
 */
function skills(query: string): Command[] {
  const matchesQuery = skillFilter(query);
  const start = query.trim().toLowerCase();
  const rank = ({ id, name }: Skill) => {
    if (id.toLowerCase().startsWith(start) || name.toLowerCase().startsWith(start)) return 0;
    return matchesQuery({ id, name, description: "", tags: [] }) ? 1 : 2;
  };
  const matchingSkills = (card.value?.skills ?? []).filter(skillFilter(query)).sort((a, b) => rank(a) - rank(b));
  return matchingSkills.slice(0, MAX_SKILLS).map(({ id, name }) => ({ kind: "Skill", label: name, detail: id, run: () => go(href("skills", id)) }));
}

/** Known tasks whose ids contain *text*; if there are none, a guessed task if *text* looks like an id. */
function tasks(text: string): [known: Command[], guessed: Command[]] {
  if (text.length < 2 || /\s/.test(text)) return [[], []];
  const tasksOfRuns = [...histories.value.values()].flat().flatMap(({ task, skillId }) => (task ? [[task.id, skillId] as const] : []));
  const waitingTasks = (inbox.value ?? []).map((task) => [task.id, skillOf(task)] as const);
  const known = new Map([...tasksOfRuns, ...waitingTasks].filter(([id]) => id.includes(text)).slice(0, MAX_TASKS));
  const command = (id: string, skill?: string): Command => ({
    kind: "Task",
    label: `Open task ${id}`,
    detail: skill,
    run: () => go(href("tasks", id)),
  });
  const mayBeId = !known.size && text.length >= MIN_ID_LENGTH && /\d/.test(text);
  return [[...known].map(([id, skill]) => command(id, skill)), mayBeId ? [command(text)] : []];
}

function views(): Command[] {
  const commonViews: [string, string][] = [
    ["skills", "Skills"],
    ["tasks", "Tasks"],
    ["inbox", "Inbox"],
    ["conversations", "Conversations"],
    ["requests", "Requests"],
  ];
  const allowedApcoreViews = ([["now", "Now"], ["performance", "Performance"], ["webhooks", "Webhooks"]] as const).filter(([name]) =>
    apcoreViews.value.has(name),
  );
  return [...commonViews, ...allowedApcoreViews].map(([name, label]) => ({ kind: "View", label, run: () => go(href(name)) }));
}

function actions(): Command[] {
  const action = (label: string, run: () => void): Command => ({ kind: "Action", label, run });
  const otherVersion = version.value === "1.0" ? "0.3" : "1.0";
  return [
    action("New conversation", () => go(href("conversations", "new"))),
    action("Light theme", () => (theme.value = "light")),
    action("Dark theme", () => (theme.value = "dark")),
    action("System theme", () => (theme.value = "system")),
    action(`Use A2A ${otherVersion}`, () => (version.value = otherVersion)),
    credentials.value ? action("Sign out", signOut) : action("Sign in", () => (signingIn.value = { reason: "" })),
  ];
}
