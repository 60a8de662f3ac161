import { useState } from "preact/hooks";
import { JsonTree } from "../parts/JsonTree";
import { partOf } from "../protocol/parts";
import { approvalAnswer, questionOf, type Question } from "../protocol/question";
import type { Part, Task } from "../protocol/types";
import { answer } from "../state/answer";
import type { Run } from "../state/run";
import { Failure } from "./Errors";
import { When } from "./When";

interface Props {
  task: Task;
  run?: Run;
  replied: (next: Run) => void;
}

/** The question of a paused task, with ways to answer it. */
export function QuestionView({ task, run, replied }: Props) {
  const question = questionOf(task);
  const [sent, setSent] = useState<Run | null>(null);
  if (!question) return null;
  void sent?.changed.value;
  const reply = (part: Part) => {
    if (!sent?.active) setSent(answer(task, part, run?.events ?? [], replied));
  };
  return (
    <section class="question" aria-label={`Input requested by task ${task.id}`}>
      <h3>{TITLES[question.kind]}</h3>
      <p class="asked">{question.text}</p>
      {question.arguments && (
        <div class="tree">
          <JsonTree value={question.arguments} name="arguments" />
        </div>
      )}
      {question.data !== undefined && question.data !== null && !question.choices.length && (
        <div class="tree">
          <JsonTree value={question.data} />
        </div>
      )}
      {question.expiresAt && <p class="hint">Expires <When time={question.expiresAt} />.</p>}
      {question.kind === "approval" && question.decidedBy !== "server" ? (
        <Approval question={question} answer={reply} />
      ) : (
        <Reply question={question} answer={reply} />
      )}
      <Failure error={sent?.error} />
    </section>
  );
}

const TITLES: Record<Question["kind"], string> = {
  approval: "Waiting for your approval",
  input: "Waiting for your input",
  auth: "Waiting for you to authenticate elsewhere",
};

interface AnswerProps {
  question: Question;
  answer: (part: Part) => void;
}

function Approval({ question, answer }: AnswerProps) {
  const [comment, setComment] = useState("");
  const say = (approved: boolean) => answer({ data: approvalAnswer(question, approved, comment) });
  return (
    <>
      <label for={`comment-${question.id}`}>Comment (optional)</label>
      <input
        id={`comment-${question.id}`}
        value={comment}
        onInput={(event) => setComment(event.currentTarget.value)}
      />
      <div class="bar">
        <button type="button" class="primary" onClick={() => say(true)}>
          Approve
        </button>
        <button type="button" class="danger" onClick={() => say(false)}>
          Deny
        </button>
      </div>
    </>
  );
}

function Reply({ question, answer }: AnswerProps) {
  const [text, setText] = useState("");
  const [inputError, setInputError] = useState("");
  const id = `reply-${question.id ?? "task"}`;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return setInputError("Enter an answer first.");
    answer(partOf(text));
  };
  return (
    <form onSubmit={submit}>
      {question.choices.length > 0 && (
        <div class="presets">
          {question.choices.map((choice) => (
            <button key={choice} type="button" onClick={() => answer({ text: choice })}>
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
