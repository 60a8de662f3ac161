import { useEffect, useState } from "preact/hooks";
import { diffLines } from "../protocol/diff";
import { toJson } from "../protocol/json";
import type { Json, Part } from "../protocol/types";
import { pretty } from "../protocol/values";
import { histories, runs, showRun } from "../state/runs";
import type { Run } from "../state/run";
import { StateBadge } from "./Badges";
import { When } from "./When";
import { formatDuration } from "./times";

interface Props {
  skillId: string;
  /** Run the skill again with the input of *run*. */
  rerun: (run: Run) => void;
}

/** The latest runs of a skill: each can be shown, run again, or compared with the shown run. */
export function HistoryView({ skillId, rerun }: Props) {
  const history = histories.value.get(skillId) ?? [];
  const shownRun = runs.value.get(skillId);
  const [comparedRun, setComparedRun] = useState<Run | null>(null);
  if (history.length < 2 || !shownRun) return null;
  return (
    <section class="history" aria-label="Latest runs">
      <h3>Runs</h3>
      <ol>
        {history.map((run) => (
          <Row
            key={run.startedAt}
            run={run}
            isShown={run === shownRun}
            show={() => showRun(skillId, run)}
            rerun={() => rerun(run)}
            compare={() => setComparedRun(run)}
          />
        ))}
      </ol>
      {comparedRun && <Comparison {...inOrder(comparedRun, shownRun)} close={() => setComparedRun(null)} />}
    </section>
  );
}

const inOrder = (left: Run, right: Run) =>
  left.startedAt < right.startedAt ? { before: left, after: right } : { before: right, after: left };

interface RowProps {
  run: Run;
  isShown: boolean;
  show: () => void;
  rerun: () => void;
  compare: () => void;
}

function Row({ run, isShown, show, rerun, compare }: RowProps) {
  void run.changed.value;
  const { task, startedAt, endedAt } = run;
  return (
    <li class={`row${isShown ? " shown" : ""}`}>
      <button type="button" class="quiet small" aria-pressed={isShown} onClick={show}>
        <When time={startedAt} />
      </button>
      {task ? <StateBadge state={task.status.state} /> : <span class="badge plain">no task</span>}
      {endedAt !== undefined && <span class="muted number">{formatDuration(endedAt - startedAt)}</span>}
      <span class="muted breakable brief">{inputPreviewOf(run)}</span>
      <span class="actions">
        <button type="button" class="quiet small" onClick={rerun}>
          Run again
        </button>
        {!isShown && (
          <button type="button" class="quiet small" onClick={compare}>
            Compare
          </button>
        )}
      </span>
    </li>
  );
}

function Comparison({ before, after, close }: { before: Run; after: Run; close: () => void }) {
  void before.changed.value;
  void after.changed.value;
  useEffect(() => void Promise.all([before.load(), after.load()]), [before, after]);
  return (
    <section class="comparison" aria-label="Comparison">
      <header class="row">
        <h4>
          <When time={before.startedAt} /> → <When time={after.startedAt} />
        </h4>
        <button type="button" class="quiet small" onClick={close}>
          Close
        </button>
      </header>
      <Difference title="Input" before={inputOf(before)} after={inputOf(after)} />
      <Difference title="Result" before={resultOf(before)} after={resultOf(after)} />
    </section>
  );
}

function Difference({ title, before, after }: { title: string; before: Json; after: Json }) {
  const lines = diffLines(pretty(before), pretty(after));
  const isSame = lines.every(({ sign }) => sign === " ");
  return (
    <>
      <h5>{title}</h5>
      {isSame ? (
        <p class="muted">No difference.</p>
      ) : (
        <pre class="diff" tabIndex={0}>
          {lines.map(({ sign, text }, index) => (
            <div key={index} class={CLASSES[sign]}>
              {sign} {text}
            </div>
          ))}
        </pre>
      )}
    </>
  );
}

const CLASSES = { " ": "", "-": "removed", "+": "added" };

const inputOf = ({ sent }: Run) => ("message" in sent ? contentOf(sent.message.parts) : null);

const resultOf = ({ task }: Run): Json => ({
  state: task?.status.state ?? "no task",
  artifacts: (task?.artifacts ?? []).map((artifact) => contentOf(artifact.parts)),
});

/** The content of parts: a list, or the content itself if there is only one part. */
function contentOf(parts: Part[]): Json {
  const contents = parts.map((part) => part.data ?? part.text ?? part.filename ?? part.url ?? null);
  return contents.length === 1 ? contents[0]! : contents;
}

const inputPreviewOf = (run: Run) => {
  const input = inputOf(run);
  return (typeof input === "string" ? input : toJson(input)).slice(0, 80);
};
