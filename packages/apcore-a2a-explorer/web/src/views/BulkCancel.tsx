import { useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { describe } from "../protocol/errors";
import { perform } from "../state/agent";
import { inParallel } from "./inParallel";

/** A bar that cancels the chosen tasks, after a second press. */
export function BulkCancel({ ids, onDone }: { ids: string[]; onDone: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const [outcome, setOutcome] = useState("");
  const [isBusy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    const refusals = await cancelAll(ids);
    setBusy(false);
    setAsking(false);
    const canceled = `${counted(ids.length - refusals.length, "task")} canceled.`;
    setOutcome(refusals.length ? `${canceled} ${refusals.length} refused: ${refusals[0]}` : canceled);
    onDone();
  };
  return (
    <div class="bulk row">
      <p role="status">{ids.length ? `${counted(ids.length, "task")} selected` : outcome}</p>
      {ids.length > 0 && !isAsking && (
        <button type="button" class="danger" onClick={() => setAsking(true)}>
          Cancel selected tasks
        </button>
      )}
      {ids.length > 0 && isAsking && (
        <>
          <button type="button" class="danger" disabled={isBusy} onClick={() => void cancel()}>
            Yes, cancel {counted(ids.length, "task")}
          </button>
          <button type="button" class="quiet" onClick={() => setAsking(false)}>
            Keep them
          </button>
        </>
      )}
    </div>
  );
}

/** Cancel tasks; return the reasons of those that could not be canceled. */
async function cancelAll(ids: string[]): Promise<string[]> {
  const refusals: string[] = [];
  await inParallel(ids, (id) =>
    perform({ name: "cancel", id }).catch((error: unknown) => refusals.push(describe(error))),
  );
  return refusals;
}
