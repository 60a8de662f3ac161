import { useEffect, useMemo, useRef } from "preact/hooks";
import { hasForm } from "../form/schema";
import { validate } from "../form/validator";
import { Choice } from "../parts/Choice";
import { takesFiles, takesText, type Skill } from "../protocol/card";
import { fieldErrors, taskErrors } from "../protocol/errors";
import { card } from "../state/agent";
import { applyExample, draftOf, partsOf, type Draft, type InputKind } from "../state/draft";
import { operationOf, rememberRun, runs, start, type SendMode, type SendParams } from "../state/runs";
import { CopyView } from "./CopyView";
import { Errors } from "./Errors";
import { InputView } from "./InputView";
import { RunView } from "./RunView";

const LABELS: Record<InputKind, string> = { data: "Data", text: "Text", files: "Files" };

export function TryView({ skill }: { skill: Skill }) {
  const draft = useMemo(() => draftOf(skill), [skill]);
  const streams = card.value?.capabilities.streaming ?? false;
  const defaultMode: SendMode = streams ? "stream" : "send";
  const latestMode = useRef<SendMode>(defaultMode);
  const send = (mode: SendMode, unchecked = false) => {
    latestMode.current = mode;
    submit(skill, draft, mode, unchecked);
  };
  useEffect(
    () =>
      draft.data.subscribe(() => {
        if (draft.errors.peek().some((each) => each.local)) draft.errors.value = check(skill, draft);
      }),
    [skill, draft],
  );
  const keys = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send(defaultMode);
  };
  const kinds: InputKind[] = [
    "data",
    ...(takesText(skill) ? ["text" as const] : []),
    ...(takesFiles(skill) ? ["files" as const] : []),
  ];
  const run = runs.value.get(skill.id);
  return (
    <section aria-labelledby="try" class="try" onKeyDown={keys}>
      <h2 id="try">Try it</h2>
      <Presets skill={skill} draft={draft} />
      <Choice
        label="Send as"
        options={kinds.map((kind) => LABELS[kind])}
        value={LABELS[draft.kind.value]}
        onChange={(label) => {
          draft.kind.value = kinds.find((kind) => LABELS[kind] === label)!;
          draft.errors.value = [];
        }}
      />
      <InputView skill={skill} draft={draft} />
      <More draft={draft} />
      <Refused draft={draft} sendAnyway={() => send(latestMode.current, true)} />
      <SendBar streams={streams} send={send} />
      {draft.kind.value === "data" && draft.jsonError.value ? (
        <p class="muted">Fix the JSON to copy the request.</p>
      ) : (
        <CopyView operation={operationOf(defaultMode, partsOf(draft), sendingOf(skill, draft))} />
      )}
      {run && <RunView key={run.startedAt} run={run} replied={(next) => rememberRun(skill.id, next)} />}
    </section>
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

/** The errors that the page found before sending, including those that belong to no form field. */
function Refused({ draft, sendAnyway }: { draft: Draft; sendAnyway: () => void }) {
  const errors = draft.errors.value.filter((each) => each.local);
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

interface SendBarProps {
  streams: boolean;
  send: (mode: SendMode) => void;
}

function SendBar({ streams, send }: SendBarProps) {
  return (
    <div class="bar">
      {streams && (
        <button type="button" class="primary" onClick={() => send("stream")}>
          Stream
        </button>
      )}
      <button type="button" class={streams ? "" : "primary"} onClick={() => send("send")}>
        Send and wait
      </button>
      <button type="button" onClick={() => send("later")}>
        Send without waiting
      </button>
      <span class="muted keys">
        <kbd>Ctrl</kbd> <kbd>Enter</kbd>
      </span>
    </div>
  );
}

function sendingOf(skill: Skill, draft: Draft): SendParams {
  const { contextId, webhook, token } = draft;
  return {
    skillId: skill.id,
    contextId: contextId.value.trim(),
    options: webhook.value ? { push: { url: webhook.value, token: token.value } } : undefined,
  };
}

function submit(skill: Skill, draft: Draft, mode: SendMode, unchecked: boolean): void {
  if (draft.kind.value === "data" && draft.jsonError.value) {
    return document.getElementById("json-input")?.focus();
  }
  if (draft.kind.value === "files" && !draft.files.value.length) {
    draft.errors.value = [{ field: "", message: "Choose a file first.", local: true }];
    return;
  }
  draft.errors.value = unchecked ? [] : check(skill, draft);
  if (draft.errors.value.length) return focusFirstError();
  const run = start(mode, partsOf(draft), sendingOf(skill, draft));
  rememberRun(skill.id, run);
  const stop = run.changed.subscribe(() => {
    if (run.connection !== "ended") return;
    draft.errors.value = [...fieldErrors(run.error), ...taskErrors(run.task)];
    if (draft.errors.value.length) focusFirstError();
    queueMicrotask(() => stop());
  });
}

function check(skill: Skill, draft: Draft) {
  if (draft.kind.value !== "data" || !hasForm(skill.inputSchema)) return [];
  return validate(skill.inputSchema, draft.data.value).map((each) => ({ ...each, local: true }));
}

/** Focus the first invalid field, after the form has rendered the errors. */
function focusFirstError(): void {
  setTimeout(() => {
    const field = document.querySelector<HTMLElement>(".field.wrong :is(input, textarea, select)");
    field?.focus();
  }, 50);
}
