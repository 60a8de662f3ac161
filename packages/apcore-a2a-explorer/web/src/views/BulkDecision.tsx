import { useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { describe } from "../protocol/errors";
import { approvalAnswer, questionOf } from "../protocol/question";
import type { Task } from "../protocol/types";
import { answer } from "../state/answer";
import type { Run } from "../state/run";
import { Denial } from "./Decision";
import { inParallel } from "./inParallel";
import { differentReasons } from "./reasons";

interface Props {
  /** The tasks whose approvals are selected. */
  tasks: Task[];
  onReply: (next: Run) => void;
  /** Called when each answer has been accepted or has failed. */
  onDone: () => void;
}

/** A bar that approves the selected calls after the user has confirmed, or denies them all with the same reason. */
export function BulkDecision({ tasks, onReply, onDone }: Props) {
  const [step, setStep] = useState<"" | "approve" | "deny">("");
  const [outcome, setOutcome] = useState("");
  const [isBusy, setBusy] = useState(false);
  const decide = async (isApproved: boolean, reason = "") => {
    if (isBusy) return;
    setBusy(true);
    const failures = await decideAll(tasks, isApproved, reason, onReply);
    setBusy(false);
    setStep("");
    const sentText = `${counted(tasks.length - failures.length, "answer")} sent.`;
    setOutcome(failures.length ? `${sentText} ${failures.length} failed: ${differentReasons(failures)}` : sentText);
    onDone();
  };
  const calls = counted(tasks.length, "call");
  return (
    <div class="bulk">
      <div class="row">
        <p role="status">{tasks.length ? `${calls} selected` : outcome}</p>
        {tasks.length > 0 && step === "" && (
          <>
            <button type="button" class="primary" onClick={() => setStep("approve")}>
              Approve selected calls
            </button>
            <button type="button" onClick={() => setStep("deny")}>
              Deny selected calls…
            </button>
          </>
        )}
        {tasks.length > 0 && step === "approve" && (
          <>
            <button type="button" class="primary" disabled={isBusy} onClick={() => void decide(true)}>
              Yes, approve {calls}
            </button>
            <button type="button" class="quiet" onClick={() => setStep("")}>
              Not now
            </button>
          </>
        )}
      </div>
      {tasks.length > 0 && step === "deny" && (
        <Denial id="selected" calls={calls} deny={(reason) => void decide(false, reason)} back={() => setStep("")} />
      )}
    </div>
  );
}

/** Answer the approvals of tasks; for each answer that failed, return the reason. */
async function decideAll(
  tasks: Task[],
  isApproved: boolean,
  reason: string,
  onReply: (next: Run) => void,
): Promise<string[]> {
  const failures: string[] = [];
  await inParallel(tasks, async (task) => {
    const question = questionOf(task);
    if (!question) return;
    const { run, accepted } = answer(task, { data: approvalAnswer(question, isApproved, reason) }, [], onReply);
    if (await accepted) return;
    failures.push(run.isLate ? "The answer came too late." : describe(run.error));
  });
  return failures;
}
