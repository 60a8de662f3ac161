import { durationOf, skillOf, taskFacts } from "../protocol/taskFacts";
import { isTerminal } from "../protocol/states";
import type { Task } from "../protocol/types";
import { now } from "../state/clock";
import { href } from "../state/route";
import { StateBadge } from "./Badges";
import { When } from "./When";
import { formatDuration, shortId } from "./times";

interface Props {
  tasks: Task[];
  /** The ids of the chosen tasks. */
  chosen: Set<string>;
  choose: (ids: Set<string>) => void;
  /** The replicas that run the tasks, by task id; undefined hides the column. */
  holders?: Map<string, string>;
}

/** A table of tasks; on phones, a list of cards. Principals are shown if known, attempts if a task has had several. */
export function TaskTable({ tasks, chosen, choose, holders }: Props) {
  const facts = tasks.map(taskFacts);
  const hasPrincipal = facts.some((taskFact) => taskFact.principal);
  const hasAttempts = facts.some((taskFact) => (taskFact.attempts ?? 1) > 1);
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose(next);
  };
  return (
    <table class="tasks" role="table" aria-label="Tasks">
      <thead role="rowgroup">
        <tr role="row">
          <th scope="col" role="columnheader"><SelectAll tasks={tasks} chosen={chosen} choose={choose} /></th>
          <th scope="col" role="columnheader">Task</th>
          <th scope="col" role="columnheader">State</th>
          <th scope="col" role="columnheader">Skill</th>
          {hasPrincipal && <th scope="col" role="columnheader">Principal</th>}
          <th scope="col" role="columnheader">Updated</th>
          <th scope="col" role="columnheader">Duration</th>
          {holders && <th scope="col" role="columnheader">Replica</th>}
          {hasAttempts && <th scope="col" role="columnheader">Attempts</th>}
          <th scope="col" role="columnheader" class="conversation-cell">Conversation</th>
        </tr>
      </thead>
      <tbody role="rowgroup">
        {tasks.map((task, index) => (
          <tr key={task.id} role="row">
            <td role="cell" class="select-cell"><TaskCheckbox task={task} isChosen={chosen.has(task.id)} toggle={toggle} /></td>
            <td role="cell" class="id-cell">
              <a class="mono" href={href("tasks", task.id)} title={task.id}>
                {shortId(task.id)}
              </a>
            </td>
            <td role="cell" class="state-cell">
              <StateBadge state={task.status.state} />
            </td>
            <td role="cell" class="skill-cell mono" title={skillOf(task)}>{skillOf(task)}</td>
            {hasPrincipal && <td role="cell" class="principal-cell breakable" title={facts[index]!.principal}>{facts[index]!.principal}</td>}
            <td role="cell" class="when-cell number">
              <When time={task.status.timestamp} />
            </td>
            <td role="cell" class="duration-cell number"><Duration task={task} /></td>
            {holders && <td role="cell" class="replica-cell mono" title={holders.get(task.id)}>{holders.get(task.id)}</td>}
            {hasAttempts && <td role="cell" class="attempts-cell number">{facts[index]!.attempts}</td>}
            <td role="cell" class="conversation-cell">
              <a class="mono" href={href("conversations", task.contextId)} title={task.contextId}>
                {shortId(task.contextId)}
              </a>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Duration({ task }: { task: Task }) {
  const duration = durationOf(task, now.value);
  return <>{duration === undefined ? "" : formatDuration(duration)}</>;
}

/** A checkbox for a task that can be canceled. */
function TaskCheckbox({ task, isChosen, toggle }: { task: Task; isChosen: boolean; toggle: (id: string) => void }) {
  if (isTerminal(task.status.state)) return null;
  return (
    <label class="tick">
      <span class="sr">Select task {task.id}</span>
      <input type="checkbox" checked={isChosen} onChange={() => toggle(task.id)} />
    </label>
  );
}

function SelectAll({ tasks, chosen, choose }: Props) {
  const ids = tasks.filter((task) => !isTerminal(task.status.state)).map((task) => task.id);
  if (!ids.length) return <span class="sr">Selection</span>;
  const isAll = ids.every((id) => chosen.has(id));
  return (
    <label class="tick" title="Select all that have not ended">
      <span class="sr">Select all that have not ended</span>
      <input type="checkbox" checked={isAll} onChange={() => choose(new Set(isAll ? [] : ids))} />
    </label>
  );
}
