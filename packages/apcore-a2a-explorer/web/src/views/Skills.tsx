import { skillsById } from "../state/agent";
import { Landing } from "./Landing";
import { SkillList } from "./SkillList";
import { SkillView } from "./SkillView";

/** The start page, or the list of skills beside the chosen one. */
export function Skills({ id, query }: { id?: string; query: URLSearchParams }) {
  if (id === undefined) return <Landing />;
  const skill = skillsById.value.get(id);
  return (
    <div class="split chosen">
      <SkillList id={id} />
      <div class="page">
        {skill ? <SkillView key={id} skill={skill} query={query} /> : <NoSkill id={id} />}
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
