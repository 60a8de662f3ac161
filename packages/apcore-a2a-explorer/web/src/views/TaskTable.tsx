import type { Task } from "../protocol/types";
import { href } from "../state/route";
import { StateBadge } from "./Badges";
import { moment, short } from "./times";

export function TaskTable({ tasks }: { tasks: Task[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Tasks">
      <table class="tasks">
        <thead>
          <tr>
            <th scope="col">Task</th>
            <th scope="col">State</th>
            <th scope="col">Skill</th>
            <th scope="col">Updated</th>
            <th scope="col">Conversation</th>
          </tr>
        </thead>
        <tbody>
          {tasks.map((task) => (
            <tr key={task.id}>
              <td>
                <a class="mono" href={href("tasks", task.id)} title={task.id}>
                  {short(task.id)}
                </a>
              </td>
              <td>
                <StateBadge state={task.status.state} />
              </td>
              <td class="mono">{skillOf(task)}</td>
              <td class="number">{moment(task.status.timestamp)}</td>
              <td>
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
