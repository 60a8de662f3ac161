import { useEffect, useRef, useState } from "preact/hooks";
import { ArtifactView } from "../parts/ArtifactView";
import { takesText } from "../protocol/card";
import { questionOf } from "../protocol/question";
import { partOf } from "../protocol/parts";
import { isSettled } from "../protocol/states";
import { skillOf } from "../protocol/taskFacts";
import type { ListQuery, Message, Task, TaskPage } from "../protocol/types";
import { card, outputSchemaOf } from "../state/agent";
import { go, href } from "../state/route";
import type { Run } from "../state/run";
import { start } from "../state/runs";
import { getTask, listTasks } from "../state/tasks";
import { StateBadge } from "./Badges";
import { Failure } from "./Errors";
import { authorOf, MessageView } from "./MessageView";
import { QuestionView } from "./QuestionView";
import { LateNotice, RunView } from "./RunView";
import { shortId } from "./times";
import { usePages } from "./usePages";

const TASKS_PER_PAGE = 10;

/** A conversation, oldest task first, with a form for the next message. */
export const ConversationView = ({ id }: { id: string }) =>
  id === "new" ? <NewConversation /> : <KnownConversation id={id} />;

function NewConversation() {
  const [run, setRun] = useState<Run | null>(null);
  const isRunSettled = hasSettled(run);
  useEffect(() => {
    if (isRunSettled) go(href("conversations", run!.task!.contextId));
  }, [run, isRunSettled]);
  return (
    <section class="page">
      <Back />
      <h1>New conversation</h1>
      <div aria-live="polite">
        {run && <Live key={run.startedAt} run={run} onReply={setRun} />}
      </div>
      <Composer contextId="" onStart={setRun} />
    </section>
  );
}

function KnownConversation({ id }: { id: string }) {
  const { tasks, next, error, busy, load } = usePages(
    { contextId: id, pageSize: TASKS_PER_PAGE, includeArtifacts: true },
    loadWholeTasks,
  );
  const [run, setRun] = useState<Run | null>(null);
  const isRunSettled = hasSettled(run);
  useEffect(() => {
    if (isRunSettled) void load();
  }, [run, isRunSettled]);
  const end = useRef<HTMLDivElement>(null);
  const isLoaded = tasks !== null;
  useEffect(() => {
    if (isLoaded) end.current?.scrollIntoView({ block: "end" });
  }, [isLoaded]);
  const shownTasks = (tasks ?? []).filter((task) => isRunSettled || task.id !== run?.task?.id);
  return (
    <section class="page">
      <Back />
      <h1>
        Conversation <span class="mono">{shortId(id)}</span>
      </h1>
      <Failure error={error} />
      {tasks === null && !error && <p class="muted">Loading tasks…</p>}
      {tasks?.length === 0 && !run && <p class="empty">No messages in this conversation yet.</p>}
      {next && (
        <button type="button" disabled={busy} onClick={() => void load(next)}>
          Show earlier tasks
        </button>
      )}
      <div aria-live="polite">
        {shownTasks.sort((a, b) => timeOf(a) - timeOf(b)).map((task) => (
          <Turn key={task.id} task={task} onReply={setRun} />
        ))}
        {run && !isRunSettled && <Live key={run.startedAt} run={run} onReply={setRun} />}
        {run && isRunSettled && <LateNotice run={run} />}
      </div>
      <Composer contextId={id} latestSkillId={latestSkillId(tasks)} onStart={setRun} />
      <div ref={end} />
    </section>
  );
}

const Back = () => (
  <p>
    <a href="#/conversations">← Conversations</a>
  </p>
);

/** Whether *run* has ended and its task is settled. From then on, the list of tasks shows the task. */
function hasSettled(run: Run | null): boolean {
  void run?.changed.value;
  return Boolean(run && !run.isActive && run.task && isSettled(run.task.status.state));
}

/** A running task, below its messages so far. */
function Live({ run, onReply }: { run: Run; onReply: (run: Run) => void }) {
  void run.changed.value;
  return (
    <>
      {run.task?.history.map((message, index) => <MessageView key={index} message={message} />)}
      <RunView run={run} onReply={onReply} />
    </>
  );
}

/** Load a page of tasks. A task without history is loaded by id, because some agents leave history and artifacts out of lists. */
async function loadWholeTasks(query: ListQuery): Promise<TaskPage> {
  const page = await listTasks(query);
  const loadingTasks = page.tasks.map((task) =>
    task.history.length ? task : getTask(task.id).catch(() => task),
  );
  return { ...page, tasks: await Promise.all(loadingTasks) };
}

const timeOf = (task: Task) => Date.parse(task.status.timestamp ?? "") || 0;

function Turn({ task, onReply }: { task: Task; onReply: (run: Run) => void }) {
  const statusMessage = task.status.message;
  const isRecorded = task.history.some((message) => message.messageId === statusMessage?.messageId);
  const question = questionOf(task);
  const messages: Message[] = statusMessage && !isRecorded && !question ? [...task.history, statusMessage] : task.history;
  return (
    <section class="turn" aria-label={`Task ${shortId(task.id)}`}>
      <header class="row">
        <a class="mono" href={href("tasks", task.id)}>
          {skillOf(task) || shortId(task.id)}
        </a>
        <StateBadge state={task.status.state} />
      </header>
      {messages.map((message, index) => (
        <MessageView key={index} message={message} author={authorOf(task)} />
      ))}
      {question && <QuestionView task={task} onReply={onReply} />}
      {task.artifacts.map((artifact) => (
        <ArtifactView key={artifact.artifactId} artifact={artifact} schema={outputSchemaOf(skillOf(task))} />
      ))}
    </section>
  );
}

/** The skill id of the latest task that has a skill; *tasks* begins with the latest task. */
const latestSkillId = (tasks: Task[] | null) => tasks?.map(skillOf).find(Boolean);

interface ComposerProps {
  contextId: string;
  /** The id of the latest task's skill. */
  latestSkillId?: string;
  onStart: (run: Run) => void;
}

function Composer({ contextId, latestSkillId, onStart }: ComposerProps) {
  const skills = card.value?.skills ?? [];
  const [chosenSkillId, setChosenSkillId] = useState("");
  const harmless = skills.filter((skill) => skill.annotations.destructive !== true);
  const skillId = chosenSkillId || latestSkillId || (harmless.find(takesText) ?? harmless[0] ?? skills[0])?.id || "";
  const [text, setText] = useState("");
  const send = (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const mode = card.value?.capabilities.streaming ? "stream" : "send";
    onStart(start(mode, [partOf(text)], { skillId: skillId || undefined, contextId }));
    setText("");
  };
  return (
    <form class="composer" onSubmit={send}>
      <label>
        Skill
        <select value={skillId} onChange={(event) => setChosenSkillId(event.currentTarget.value)}>
          {skills.map((skill) => (
            <option key={skill.id} value={skill.id}>
              {skill.name}
            </option>
          ))}
        </select>
      </label>
      <label class="grow">
        Message (text or JSON)
        <textarea
          rows={2}
          required
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.currentTarget.form!.requestSubmit();
            }
          }}
        />
      </label>
      <button type="submit" class="primary">
        Send
      </button>
    </form>
  );
}
