import { useEffect, useRef, useState } from "preact/hooks";
import { JsonTree } from "../parts/JsonTree";
import { approvalAnswer, type Question } from "../protocol/question";
import type { Json, JsonObject, Task } from "../protocol/types";
import { skillsById } from "../state/agent";
import { answer } from "../state/answer";
import type { Run } from "../state/run";
import { Failure } from "./Errors";

interface Props {
  task: Task;
  question: Question;
  replied: (next: Run) => void;
}

/** A call to approve or deny. Approving a destructive one takes its skill's name. */
export function ApprovalView({ task, question, replied }: Props) {
  const [sent, setSent] = useState<Run | null>(null);
  const [isDenying, setDenying] = useState(false);
  void sent?.changed.value;
  const say = (approved: boolean, comment = "") => {
    if (sent?.active) return;
    setSent(answer(task, { data: approvalAnswer(question, approved, comment) }, [], replied));
  };
  const skill = question.skill ?? "";
  const isDestructive = skillsById.value.get(skill)?.annotations.destructive === true;
  return (
    <section class="question" aria-label={`Input requested by task ${task.id}`}>
      <h3>Waiting for your approval</h3>
      {question.arguments ? <Arguments source={question.arguments} /> : <p class="asked">{question.text}</p>}
      {isDenying ? (
        <Denial id={task.id} deny={(comment) => say(false, comment)} back={() => setDenying(false)} />
      ) : (
        <Decision
          id={task.id}
          name={isDestructive ? skill : ""}
          approve={() => say(true)}
          deny={() => setDenying(true)}
        />
      )}
      <Failure error={sent?.error} />
    </section>
  );
}

/** The arguments of the call, one in a row. */
function Arguments({ source }: { source: JsonObject }) {
  const entries = Object.entries(source);
  if (!entries.length) return <p class="muted">Without arguments</p>;
  return (
    <table class="arguments" aria-label="Arguments">
      <tbody>
        {entries.map(([name, value]) => (
          <tr key={name}>
            <th scope="row" class="breakable">
              {name}
            </th>
            <td>
              <Value value={value} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Value({ value }: { value: Json }) {
  if (typeof value === "string") return <span class="asked breakable">{value || <em class="muted">empty text</em>}</span>;
  if (value !== null && typeof value === "object") {
    return (
      <div class="tree">
        <JsonTree value={value} />
      </div>
    );
  }
  return <span class="mono number">{String(value)}</span>;
}

interface DecisionProps {
  id: string;
  /** The name to type before an approval; empty if none is needed. */
  name: string;
  approve: () => void;
  deny: () => void;
}

function Decision({ id, name, approve, deny }: DecisionProps) {
  const [typed, setTyped] = useState("");
  const [isMissing, setMissing] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    if (typed.trim() === name) return approve();
    setMissing(true);
    field.current?.focus();
  };
  return (
    <form onSubmit={submit}>
      {name && (
        <>
          <label for={`confirm-${id}`}>
            This can't be undone. Type <strong class="mono breakable">{name}</strong> to approve it.
          </label>
          <input
            ref={field}
            id={`confirm-${id}`}
            class="mono"
            autocomplete="off"
            aria-invalid={isMissing}
            value={typed}
            onInput={(event) => (setTyped(event.currentTarget.value), setMissing(false))}
          />
        </>
      )}
      <div class="bar">
        <button type="submit" class={name ? "danger" : "primary"} data-key="a">
          Approve
        </button>
        <button type="button" data-key="d" onClick={deny}>
          Deny…
        </button>
        <span role="status">{isMissing && "Type the name first."}</span>
      </div>
    </form>
  );
}

function Denial({ id, deny, back }: { id: string; deny: (comment: string) => void; back: () => void }) {
  const [comment, setComment] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form onSubmit={(event) => (event.preventDefault(), deny(comment.trim()))}>
      <label for={`reason-${id}`}>Reason (optional; the requester sees it)</label>
      <input
        id={`reason-${id}`}
        ref={field}
        value={comment}
        onInput={(event) => setComment(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && back()}
      />
      <div class="bar">
        <button type="submit" class="danger">
          Deny
        </button>
        <button type="button" class="quiet" onClick={back}>
          Back
        </button>
      </div>
    </form>
  );
}
