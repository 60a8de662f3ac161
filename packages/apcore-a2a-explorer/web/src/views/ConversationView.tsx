import { useEffect, useState } from "preact/hooks";
import { ArtifactView } from "../parts/ArtifactView";
import { takesText } from "../protocol/card";
import { questionOf } from "../protocol/question";
import { partOf } from "../protocol/parts";
import { isSettled } from "../protocol/states";
import type { Message, Task } from "../protocol/types";
import { card } from "../state/agent";
import { credentials } from "../state/credentials";
import { go, href } from "../state/route";
import type { Run } from "../state/run";
import { start } from "../state/runs";
import { version } from "../state/settings";
import { getTask, listTasks } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { MessageView } from "./MessageView";
import { QuestionView } from "./QuestionView";
import { RunView } from "./RunView";
import { skillOf } from "./TaskTable";
import { short } from "./times";

/** A conversation, oldest first, and what is to be said next. */
export function ConversationView({ id }: { id: string }) {
  const fresh = id === "new";
  const [tasks, setTasks] = useState<Task[] | null>(fresh ? [] : null);
  const [error, setError] = useState<unknown>(null);
  const [run, setRun] = useState<Run | null>(null);
  const load = async () => {
    if (fresh) return;
    try {
      setTasks(await tasksOf(id));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => void load(), [version.value, credentials.value]);
  void run?.changed.value;
  const live = run?.task?.id;
  const over = run && !run.active && run.task && isSettled(run.task.status.state);
  useEffect(() => {
    if (!over) return;
    if (fresh) go(href("conversations", run.task!.contextId));
    else void load();
  }, [over]);
  const shown = (tasks ?? []).filter((task) => task.id !== live || over);
  const watchedHere = run && !over;
  return (
    <section class="page wide">
      <p>
        <a href="#/conversations">← Conversations</a>
      </p>
      <h1>{fresh ? "A new conversation" : <>Conversation <span class="mono">{short(id)}</span></>}</h1>
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Asking for its tasks…</p>}
      <div class="talk" aria-live="polite">
        {shown.map((task) => (
          <Turn key={task.id} task={task} replied={setRun} />
        ))}
        {watchedHere && <RunView key={run.startedAt} run={run} replied={setRun} />}
      </div>
      <Composer contextId={fresh ? "" : id} latest={latestSkill(tasks)} began={setRun} />
    </section>
  );
}

/** With their artifacts, which 0.3 always has and others may leave out of lists. */
async function tasksOf(contextId: string): Promise<Task[]> {
  const page = await listTasks({ contextId, pageSize: 50, includeArtifacts: true });
  const whole = await Promise.all(
    page.tasks.map((task) => (task.history.length ? task : getTask(task.id).catch(() => task))),
  );
  return whole.sort((a, b) => timeOf(a) - timeOf(b));
}

const timeOf = (task: Task) => Date.parse(task.status.timestamp ?? "") || 0;

function Turn({ task, replied }: { task: Task; replied: (run: Run) => void }) {
  const last = task.status.message;
  const known = task.history.some((each) => each.messageId === last?.messageId);
  const asks = questionOf(task);
  const messages: Message[] = last && !known && !asks ? [...task.history, last] : task.history;
  return (
    <section class="turn" aria-label={`Task ${short(task.id)}`}>
      <header class="row">
        <a class="mono" href={href("tasks", task.id)}>
          {skillOf(task) || short(task.id)}
        </a>
        <StateBadge state={task.status.state} />
      </header>
      {messages.map((message, index) => (
        <MessageView key={index} message={message} />
      ))}
      {asks && <QuestionView task={task} replied={replied} />}
      {task.artifacts.map((artifact) => (
        <ArtifactView key={artifact.artifactId} artifact={artifact} />
      ))}
    </section>
  );
}

const latestSkill = (tasks: Task[] | null) => tasks?.map(skillOf).findLast(Boolean);

interface ComposerProps {
  contextId: string;
  /** The skill that was talked to last. */
  latest?: string;
  began: (run: Run) => void;
}

function Composer({ contextId, latest, began }: ComposerProps) {
  const skills = card.value?.skills ?? [];
  const [chosen, setSkill] = useState("");
  const harmless = skills.filter((skill) => skill.annotations.destructive !== true);
  const skillId = chosen || latest || (harmless.find(takesText) ?? skills[0])?.id || "";
  const [text, setText] = useState("");
  const send = (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const mode = card.value?.capabilities.streaming ? "stream" : "send";
    began(start(mode, [partOf(text)], { skillId: skillId || undefined, contextId }));
    setText("");
  };
  return (
    <form class="composer" onSubmit={send}>
      <label>
        Skill
        <select value={skillId} onChange={(event) => setSkill(event.currentTarget.value)}>
          {skills.map((skill) => (
            <option key={skill.id} value={skill.id}>
              {skill.name}
            </option>
          ))}
        </select>
      </label>
      <label class="grow">
        Message: text, or a JSON object
        <textarea
          rows={2}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
          }}
        />
      </label>
      <button type="submit" class="primary">
        Send
      </button>
    </form>
  );
}
