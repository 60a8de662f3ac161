import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hasForm } from "../form/fields";
import { validate } from "../form/validator";
import { Choice } from "../parts/Choice";
import { takesFiles, takesText, type Skill } from "../protocol/card";
import { fieldErrors, taskErrors } from "../protocol/errors";
import type { SendMode } from "../protocol/types";
import { card } from "../state/agent";
import {
  applyExample,
  draftOf,
  showParts,
  partsOf,
  setJson,
  type Draft,
  type InputKind,
} from "../state/draft";
import { href } from "../state/route";
import type { Run } from "../state/run";
import { addRun, operationOf, runs, start, type SendParams } from "../state/runs";
import { chosenMode } from "../state/settings";
import { CopySection } from "./CopyView";
import { Errors } from "./Errors";
import { HistoryView } from "./HistoryView";
import { Icon } from "./Icon";
import { InputView } from "./InputView";
import { RunView } from "./RunView";

type Shown = "Result" | "Code";

const LABELS: Record<InputKind, string> = { data: "Data", text: "Text", files: "Files" };

export function TryView({ skill, query }: { skill: Skill; query: URLSearchParams }) {
  const draft = useMemo(() => draftOf(skill), [skill]);
  const mode = modeOf(chosenMode.value);
  const result = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<Shown>(runs.peek().has(skill.id) ? "Result" : "Code");
  useEffect(() => takeSharedInput(draft, query), [draft, query]);
  useEffect(
    () =>
      draft.data.subscribe(() => {
        if (draft.errors.peek().some((error) => error.local)) draft.errors.value = check(skill, draft);
      }),
    [skill, draft],
  );
  const run = runs.value.get(skill.id);
  void run?.changed.value;
  const begin = (action: () => Run | undefined) => {
    if (run?.isActive || !action()) return;
    setShown("Result");
    // after the view has rendered the result
    setTimeout(() => reveal(result.current), 0);
  };
  const send = (skipsCheck = false) => begin(() => submit(skill, draft, mode, skipsCheck));
  const rerun = (earlier: Run) => begin(() => runAgain(skill, draft, earlier));
  const runOnCtrlEnter = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send();
  };
  return (
    <section aria-labelledby="try" class="try" onKeyDown={runOnCtrlEnter}>
      <div class="pane">
        <h2 id="try">Try it</h2>
        <Presets skill={skill} draft={draft} />
        <KindChoice skill={skill} draft={draft} />
        <InputView skill={skill} draft={draft} />
        <More draft={draft} />
        <NotSent draft={draft} sendAnyway={() => send(true)} />
        <RunBar skill={skill} draft={draft} isRunning={run?.isActive ?? false} run={() => send()} />
      </div>
      <div class="pane" ref={result}>
        <Choice label="Beside the input" options={["Result", "Code"]} value={shown} onChange={setShown} />
        {/* hidden instead of removed, so that the result keeps its state */}
        <div hidden={shown !== "Result"}>
          {run ? (
            <RunView
              key={run.startedAt}
              run={run}
              onReply={(next) => addRun(skill.id, next)}
              rerun={() => rerun(run)}
            />
          ) : (
            <p class="empty">Run the skill to see its result here.</p>
          )}
          <HistoryView skillId={skill.id} rerun={rerun} />
        </div>
        {shown === "Code" && <Code skill={skill} draft={draft} mode={mode} />}
      </div>
    </section>
  );
}

/** The request that the Run button would send, as code. */
function Code({ skill, draft, mode }: { skill: Skill; draft: Draft; mode: SendMode }) {
  if (draft.kind.value === "data" && draft.jsonError.value) {
    return <p class="muted">Fix the JSON to copy the request.</p>;
  }
  return <CopySection operation={operationOf(mode, partsOf(draft), sendParamsOf(skill, draft))} />;
}

/** The mode to run a skill in: the chosen mode if the agent supports it, else a default. */
function modeOf(chosen: SendMode | null): SendMode {
  const streams = card.value?.capabilities.streaming ?? false;
  if (chosen && (streams || chosen !== "stream")) return chosen;
  return streams ? "stream" : "send";
}

/** Scroll to the result if its top is above the screen, or low on the screen as on phones. */
function reveal(result: HTMLElement | null): void {
  if (!result) return;
  const { top } = result.getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.6) result.scrollIntoView({ block: "start" });
}

function KindChoice({ skill, draft }: { skill: Skill; draft: Draft }) {
  const kinds: InputKind[] = [
    "data",
    ...(takesText(skill) ? ["text" as const] : []),
    ...(takesFiles(skill) ? ["files" as const] : []),
  ];
  return (
    <Choice
      label="Send as"
      options={kinds.map((kind) => LABELS[kind])}
      value={LABELS[draft.kind.value]}
      onChange={(label) => {
        draft.kind.value = kinds.find((kind) => LABELS[kind] === label)!;
        draft.errors.value = [];
      }}
    />
  );
}

function Presets({ skill, draft }: { skill: Skill; draft: Draft }) {
  if (!skill.examples.length) return null;
  return (
    <div class="presets">
      <span class="muted">Fill in an example:</span>
      {skill.examples.map((example, index) => (
        <button
          key={index}
          type="button"
          class="quiet"
          title={example.description}
          onClick={() => applyExample(draft, example)}
        >
          {example.title}
        </button>
      ))}
    </div>
  );
}

function More({ draft }: { draft: Draft }) {
  return (
    <details class="more">
      <summary>Conversation{card.value?.capabilities.push ? " and webhook" : ""}</summary>
      <label for="context-input">Conversation (contextId; leave empty for a new one)</label>
      <input
        id="context-input"
        class="mono"
        value={draft.contextId.value}
        onInput={(event) => (draft.contextId.value = event.currentTarget.value)}
      />
      {card.value?.capabilities.push && (
        <>
          <label for="webhook-input">Webhook URL for notifications</label>
          <input
            id="webhook-input"
            type="url"
            placeholder="https://…"
            value={draft.webhook.value}
            onInput={(event) => (draft.webhook.value = event.currentTarget.value)}
          />
          <label for="token-input">Token for the webhook</label>
          <input
            id="token-input"
            value={draft.token.value}
            onInput={(event) => (draft.token.value = event.currentTarget.value)}
          />
        </>
      )}
    </details>
  );
}

/** The errors of the input that the page found before sending, including those of no form field. */
function NotSent({ draft, sendAnyway }: { draft: Draft; sendAnyway: () => void }) {
  const errors = draft.errors.value.filter((error) => error.local);
  if (!errors.length || draft.kind.value !== "data") return null;
  return (
    <div class="failure" role="alert">
      <strong>Not sent.</strong> The input does not match the skill's schema:
      <Errors errors={errors} />
      <button type="button" onClick={sendAnyway}>
        Send anyway
      </button>
    </div>
  );
}

interface RunBarProps {
  skill: Skill;
  draft: Draft;
  isRunning: boolean;
  run: () => void;
}

/** The button that runs the skill, and the choice of how to run it. */
function RunBar({ skill, draft, isRunning, run }: RunBarProps) {
  const streams = card.value?.capabilities.streaming ?? false;
  return (
    <div class="bar run-bar">
      <span class="split-button">
        <button type="button" class="primary" disabled={isRunning} onClick={run}>
          Run
        </button>
        <select
          aria-label="How to run"
          value={modeOf(chosenMode.value)}
          onChange={(event) => (chosenMode.value = event.currentTarget.value as SendMode)}
        >
          {streams && <option value="stream">and stream events</option>}
          <option value="send">and wait for the result</option>
          <option value="later">in the background</option>
        </select>
      </span>
      <span class="muted keys">
        <kbd>Ctrl</kbd> <kbd>Enter</kbd>
      </span>
      <ShareLink skill={skill} draft={draft} />
    </div>
  );
}

function ShareLink({ skill, draft }: { skill: Skill; draft: Draft }) {
  const [status, setStatus] = useState("");
  if (draft.kind.value === "files") return null;
  const input: [string, string] =
    draft.kind.value === "text" ? ["text", draft.text.value] : ["input", draft.json.value];
  const copy = async () => {
    const [page] = location.href.split("#");
    try {
      await navigator.clipboard.writeText(
        `${page}${href("skills", skill.id)}?${new URLSearchParams([input])}`,
      );
      setStatus("Link copied.");
    } catch {
      setStatus("The browser blocked copying.");
    }
    setTimeout(() => setStatus(""), 4000);
  };
  return (
    <span class="share">
      <span role="status" class="muted">
        {status}
      </span>
      <button type="button" class="quiet share-button" title="Copy link" onClick={() => void copy()}>
        <Icon name="link" />
        <span>Copy link</span>
      </button>
    </span>
  );
}

/** Fill in the input of a shared link, then remove the input from the address. */
function takeSharedInput(draft: Draft, query: URLSearchParams): void {
  const [text, input] = [query.get("text"), query.get("input")];
  if (text === null && input === null) return;
  draft.errors.value = [];
  draft.kind.value = text === null ? "data" : "text";
  if (text === null) setJson(draft, input!);
  else draft.text.value = text;
  history.replaceState(null, "", location.hash.split("?")[0]);
}

function sendParamsOf(skill: Skill, draft: Draft): SendParams {
  const { contextId, webhook, token } = draft;
  return {
    skillId: skill.id,
    contextId: contextId.value.trim(),
    options: webhook.value ? { push: { url: webhook.value, token: token.value } } : undefined,
  };
}

function submit(skill: Skill, draft: Draft, mode: SendMode, skipsCheck: boolean) {
  if (draft.kind.value === "data" && draft.jsonError.value) {
    document.getElementById("json-input")?.focus();
    return undefined;
  }
  if (draft.kind.value === "files" && !draft.files.value.length) {
    draft.errors.value = [{ field: "", message: "Choose a file first.", local: true }];
    return undefined;
  }
  draft.errors.value = skipsCheck ? [] : check(skill, draft);
  if (draft.errors.value.length) {
    focusFirstError();
    return undefined;
  }
  return addAndWatch(skill, draft, start(mode, partsOf(draft), sendParamsOf(skill, draft)));
}

/** Run the skill with the input of an earlier run, and fill in that input if the draft can show it. */
function runAgain(skill: Skill, draft: Draft, { sent }: Run): Run | undefined {
  if (!("message" in sent)) return undefined;
  const { message, options } = sent;
  showParts(draft, message.parts);
  const mode = sent.name === "stream" ? "stream" : options?.returnImmediately ? "later" : "send";
  const sendParams = { skillId: skill.id, contextId: message.contextId, options };
  return addAndWatch(skill, draft, start(mode, message.parts, sendParams));
}

/** Add a run to the history; when the run ends, show its errors at the fields. */
function addAndWatch(skill: Skill, draft: Draft, run: Run): Run {
  addRun(skill.id, run);
  const stop = run.changed.subscribe(() => {
    if (run.connection !== "ended") return;
    draft.errors.value = [...fieldErrors(run.error), ...taskErrors(run.task)];
    if (draft.errors.value.length) focusFirstError();
    queueMicrotask(() => stop());
  });
  return run;
}

function check(skill: Skill, draft: Draft) {
  if (draft.kind.value !== "data" || !hasForm(skill.inputSchema)) return [];
  return validate(skill.inputSchema, draft.data.value).map((error) => ({ ...error, local: true }));
}

/** Focus the first invalid field, after the form has rendered the errors. */
function focusFirstError(): void {
  setTimeout(() => {
    const field = document.querySelector<HTMLElement>(".field.wrong :is(input, textarea, select)");
    field?.focus();
  }, 50);
}
