import { useState } from "preact/hooks";
import { initialData } from "../form/fields";
import { SchemaForm } from "../form/SchemaForm";
import { validate } from "../form/validator";
import { ArgumentTable } from "../parts/ArgumentTable";
import { Boundary } from "../parts/Boundary";
import { Choice } from "../parts/Choice";
import { JsonTree } from "../parts/JsonTree";
import { partOf } from "../protocol/parts";
import { approvalAnswer, questionOf, type Question } from "../protocol/question";
import { fieldErrors, type FieldError } from "../protocol/errors";
import type { JsonObject, Part, Task } from "../protocol/types";
import { answer } from "../state/answer";
import type { Run } from "../state/run";
import { Countdown } from "./Countdown";
import { Decision } from "./Decision";
import { Failure } from "./Errors";

interface Props {
  task: Task;
  run?: Run;
  onReply: (next: Run) => void;
}

/** The question of a paused task, with buttons or a form to answer it. */
export function QuestionView({ task, run, onReply }: Props) {
  const question = questionOf(task);
  const [sentRun, setSentRun] = useState<Run | null>(null);
  if (!question) return null;
  void sentRun?.changed.value;
  const reply = (part: Part) => {
    if (!sentRun?.isActive) setSentRun(answer(task, part, run?.events ?? [], onReply).run);
  };
  return (
    <section class="question" aria-label={`Input requested by task ${task.id}`}>
      <header class="row">
        <h3>{titleOf(question)}</h3>
        {question.expiresAt && <Countdown time={question.expiresAt} />}
      </header>
      {question.text ? (
        <p class="question-text">{question.text}</p>
      ) : (
        <p class="question-text">
          Run <code class="breakable">{question.skill || "the skill"}</code>
          {hasArguments(question) ? " with these arguments?" : " without arguments?"}
        </p>
      )}
      {hasArguments(question) && <ArgumentTable values={question.arguments!} />}
      {question.data !== undefined && question.data !== null && !question.choices.length && (
        <div class="tree">
          <JsonTree value={question.data} />
        </div>
      )}
      {question.kind === "approval" && question.decidedBy !== "server" ? (
        <Decision
          id={task.id}
          skill={question.skill ?? ""}
          decide={(isApproved, reason) => reply({ data: approvalAnswer(question, isApproved, reason) })}
        />
      ) : question.schema && !question.choices.length ? (
        <FormReply question={question} schema={question.schema} reply={reply} agentErrors={fieldErrors(sentRun?.error)} />
      ) : (
        <TextReply question={question} reply={reply} />
      )}
      <Failure error={sentRun?.error} />
    </section>
  );
}

const hasArguments = (question: Question) => Object.keys(question.arguments ?? {}).length > 0;

const titleOf = ({ kind, decidedBy }: Question) =>
  kind === "approval" && decidedBy === "server" ? "Waiting for approval outside this page" : TITLES[kind];

const TITLES: Record<Question["kind"], string> = {
  approval: "Waiting for your approval",
  input: "Waiting for your input",
  auth: "Waiting for you to authenticate outside this page",
};

interface ReplyProps {
  question: Question;
  reply: (part: Part) => void;
}

interface FormProps extends ReplyProps {
  schema: JsonObject;
  /** The errors in the agent's response to the latest answer. */
  agentErrors: FieldError[];
}

/** A form for the question's schema, or a field for an answer as text. */
function FormReply({ question, schema, reply, agentErrors }: FormProps) {
  const [data, setData] = useState(() => initialData(schema));
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [kind, setKind] = useState<"Form" | "Text">("Form");
  const change = (next: JsonObject) => {
    setData(next);
    if (errors.length) setErrors(validate(schema, next));
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const newErrors = validate(schema, data);
    setErrors(newErrors);
    if (!newErrors.length) reply({ data });
  };
  return (
    <>
      <Choice label="Answer with" options={["Form", "Text"]} value={kind} onChange={setKind} />
      {kind === "Text" ? (
        <TextReply question={question} reply={reply} />
      ) : (
        <form onSubmit={submit}>
          <Boundary>
            <SchemaForm
              id={`answer_${(question.id ?? "task").replace(/\W/g, "_")}`}
              schema={schema}
              data={data}
              errors={errors.length ? errors : agentErrors}
              onChange={change}
            />
          </Boundary>
          <button type="submit" class="primary">
            Reply
          </button>
        </form>
      )}
    </>
  );
}

function TextReply({ question, reply }: ReplyProps) {
  const [text, setText] = useState("");
  const [inputError, setInputError] = useState("");
  const id = `reply-${question.id ?? "task"}`;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return setInputError("Enter an answer first.");
    reply(partOf(text));
  };
  return (
    <form onSubmit={submit}>
      {question.choices.length > 0 && (
        <div class="presets">
          {question.choices.map((choice) => (
            <button key={choice} type="button" onClick={() => reply({ text: choice })}>
              {choice}
            </button>
          ))}
        </div>
      )}
      <label for={id}>Answer (text or JSON)</label>
      <textarea
        id={id}
        rows={2}
        value={text}
        onInput={(event) => (setText(event.currentTarget.value), setInputError(""))}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.stopPropagation();
            submit(event);
          }
        }}
      />
      <p class="error-line" role="status">
        {inputError}
      </p>
      <button type="submit" class="primary">
        Reply
      </button>
    </form>
  );
}
