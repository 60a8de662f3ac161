import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { counted } from "../parts/counted";
import { badgesOf, type Skill } from "../protocol/card";
import { card, skillsById } from "../state/agent";
import { go, href } from "../state/route";
import { AgentView } from "./AgentView";
import { Badges } from "./Badges";
import { SkillView } from "./SkillView";

const search = signal("");

/** The list of skills beside the chosen one, or beside the agent. */
export function Skills({ id, query }: { id?: string; query: URLSearchParams }) {
  const skill = id === undefined ? undefined : skillsById.value.get(id);
  return (
    <div class={`split${id === undefined ? "" : " chosen"}`}>
      <SkillList id={id} />
      <div class="page">
        {id === undefined ? (
          <AgentView />
        ) : skill ? (
          <SkillView key={id} skill={skill} query={query} />
        ) : (
          <NoSkill id={id} />
        )}
      </div>
    </div>
  );
}

const NoSkill = ({ id }: { id: string }) => (
  <>
    <h1>Skill not found</h1>
    <p>
      The Agent Card does not list <code>{id}</code>. The skill may have been removed, or it may be
      visible only after you sign in.
    </p>
  </>
);

function SkillList({ id }: { id?: string }) {
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const { target } = event;
      const typing = target instanceof HTMLElement && target.matches("input, textarea, select");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const skills = card.value?.skills ?? [];
  const matches = skills.filter(matching(search.value));
  return (
    <nav class="list" aria-label="Skills">
      <a class="back" href="#/">
        ← All skills
      </a>
      <label class="search">
        <span class="sr">Search skills</span>
        <input
          ref={field}
          type="search"
          placeholder={`Search ${counted(skills.length, "skill")}   ( / )`}
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && matches[0]) go(href("skills", matches[0].id));
            if (event.key === "ArrowDown") event.preventDefault();
            if (event.key === "ArrowDown") list.current?.querySelector("a")?.focus();
          }}
        />
      </label>
      <p class="sr" role="status">
        {search.value && `${counted(matches.length, "skill")} found`}
      </p>
      {skills.length === 0 && <p class="muted">This agent lists no skills. If you have credentials, sign in to see more.</p>}
      {skills.length > 0 && !matches.length && <p class="muted">No skills match your search.</p>}
      <ul ref={list}>
        {matches.map((skill) => (
          <li key={skill.id}>
            <a href={href("skills", skill.id)} aria-current={skill.id === id ? "page" : undefined}>
              <strong class="breakable">{skill.name}</strong>
              <span class="muted mono breakable">{skill.id}</span>
              <Badges badges={badgesOf(skill).filter(({ tone }) => tone !== "plain")} />
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function matching(query: string): (skill: Skill) => boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return (skill) => {
    const text = [skill.id, skill.name, skill.description, ...skill.tags].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
}
