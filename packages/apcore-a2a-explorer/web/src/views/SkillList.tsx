import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { badgesOf, type Skill } from "../protocol/card";
import { firstLine, groupsOf, skillFilter, type Group } from "../protocol/groups";
import { card } from "../state/agent";
import { go, href } from "../state/route";
import { Badges } from "./Badges";

const MAX_OPEN = 40; // with more skills, groups are collapsed at first

const search = signal("");

/** All skills, searchable: a column beside the skill with *id*, or cards on the start page. */
export function SkillList({ id, asCards = false }: { id?: string; asCards?: boolean }) {
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLElement>(null);
  useSlash(field);
  const skills = card.value?.skills ?? [];
  const matches = search.value ? skills.filter(skillFilter(search.value)) : skills;
  const groups = search.value ? [{ name: "", skills: matches }] : groupsOf(skills);
  return (
    <nav ref={list} class={asCards ? "gallery" : "list"} aria-label="Skills" onKeyDown={(event) => moveFocus(event, list.current!)}>
      {!asCards && (
        <a class="back" href="#/">
          ← All skills
        </a>
      )}
      <label class="search">
        <span class="sr">Search skills</span>
        <input
          ref={field}
          type="search"
          placeholder={`Search ${counted(skills.length, "skill")}   ( / )`}
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && matches[0] && go(href("skills", matches[0].id))}
        />
      </label>
      <p class="sr" role="status">
        {search.value && `${counted(matches.length, "skill")} found`}
      </p>
      {skills.length === 0 && <p class="muted">This agent lists no skills. Some may be visible only after you sign in.</p>}
      {skills.length > 0 && !matches.length && <p class="muted">No skills match your search.</p>}
      {groups.map((group) => (
        <GroupView key={group.name} group={group} id={id} isOpen={isOpen(group, id, skills.length)} />
      ))}
    </nav>
  );
}

const isOpen = ({ skills }: Group, id: string | undefined, total: number) =>
  total <= MAX_OPEN || skills.some((skill) => skill.id === id);

/** Focus the search with `/`, unless the user is typing. */
function useSlash(field: { current: HTMLInputElement | null }): void {
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const { target } = event;
      const isTyping = target instanceof HTMLElement && target.matches("input, textarea, select");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
}

/** Move the focus between the search, the groups and the skills with the arrow keys. */
function moveFocus(event: KeyboardEvent, list: HTMLElement): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const targets = [...list.querySelectorAll<HTMLElement>("input, summary, li a")].filter((element) => element.checkVisibility());
  const next = targets[targets.indexOf(document.activeElement as HTMLElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

interface GroupProps {
  group: Group;
  id?: string;
  isOpen: boolean;
}

function GroupView({ group, id, isOpen }: GroupProps) {
  const [isExpanded, setExpanded] = useState(isOpen);
  useEffect(() => {
    if (isOpen) setExpanded(true);
  }, [isOpen]);
  const items = <Items skills={group.skills} id={id} />;
  if (!group.name) return items;
  return (
    <details class="skill-group" open={isExpanded} onToggle={(event) => setExpanded(event.currentTarget.open)}>
      <summary>
        <span class="breakable">{group.name}</span> <span class="muted">{group.skills.length}</span>
      </summary>
      {isExpanded && items}
    </details>
  );
}

const Items = ({ skills, id }: { skills: Skill[]; id?: string }) => (
  <ul>
    {skills.map((skill) => (
      <li key={skill.id}>
        <a href={href("skills", skill.id)} aria-current={skill.id === id ? "page" : undefined}>
          <strong class="breakable">{skill.name}</strong>
          <span class="muted mono breakable">{skill.id}</span>
          {skill.description && <span class="gist">{firstLine(skill.description)}</span>}
          <Badges badges={badgesOf(skill).filter(({ tone }) => tone !== "plain")} />
        </a>
      </li>
    ))}
  </ul>
);
