import { useEffect } from "preact/hooks";
import { credentials } from "../state/credentials";
import { href } from "../state/route";
import { keep } from "../state/runs";
import { version } from "../state/settings";
import { inbox, inboxError, loadInbox } from "../state/tasks";
import { Failure } from "./Errors";
import { QuestionView } from "./QuestionView";
import { skillOf } from "./TaskTable";
import { moment } from "./times";

const AGAIN = 10_000;

/** Every task that waits for somebody. */
export function Inbox() {
  useEffect(() => {
    void loadInbox();
    const timer = setInterval(() => document.hidden || void loadInbox(), AGAIN);
    return () => clearInterval(timer);
  }, [version.value, credentials.value]);
  const tasks = inbox.value;
  return (
    <section class="page wide">
      <header class="row">
        <h1>Inbox</h1>
        <button type="button" class="quiet" onClick={() => void loadInbox()}>
          Refresh
        </button>
      </header>
      <Failure error={inboxError.value} />
      {tasks === null && !inboxError.value && <p class="muted">Asking for paused tasks…</p>}
      {tasks?.length === 0 && <p class="empty">No task waits for an answer.</p>}
      {tasks?.map((task) => (
        <article key={task.id} class="card">
          <header class="row">
            <h2 class="mono breakable">{skillOf(task) || "Task"}</h2>
            <a href={href("tasks", task.id)}>Open the task</a>
            <a href={href("conversations", task.contextId)}>Conversation</a>
            <span class="muted">{moment(task.status.timestamp)}</span>
          </header>
          <QuestionView
            task={task}
            replied={(next) => {
              keep(`task ${task.id}`, next);
              setTimeout(() => void loadInbox(), 300);
            }}
          />
        </article>
      ))}
    </section>
  );
}
