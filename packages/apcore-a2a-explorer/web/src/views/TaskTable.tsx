import type { Task } from "../protocol/types";
import { href } from "../state/route";
import { StateBadge } from "./Badges";
import { When } from "./When";
import { short } from "./times";

export function TaskTable({ tasks }: { tasks: Task[] }) {
  return (
    <div class="scroll task-list" tabIndex={0} role="region" aria-label="Tasks">
      <table class="tasks" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">Task</th>
            <th scope="col" role="columnheader">State</th>
            <th scope="col" role="columnheader">Skill</th>
            <th scope="col" role="columnheader">Updated</th>
            <th scope="col" role="columnheader">Conversation</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {tasks.map((task) => (
            <tr key={task.id} role="row">
              <td role="cell">
                <a class="mono" href={href("tasks", task.id)} title={task.id}>
                  {short(task.id)}
                </a>
              </td>
              <td role="cell">
                <StateBadge state={task.status.state} />
              </td>
              <td role="cell" class="mono">{skillOf(task)}</td>
              <td role="cell" class="number">
                <When time={task.status.timestamp} />
              </td>
              <td role="cell">
                <a class="mono" href={href("conversations", task.contextId)} title={task.contextId}>
                  {short(task.contextId)}
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export const skillOf = (task: Task) =>
  typeof task.metadata?.skillId === "string" ? task.metadata.skillId : "";
