import { useState } from "preact/hooks";
import { counted } from "../parts/counted";
import { describe } from "../protocol/errors";
import { perform } from "../state/agent";
import { inParallel } from "./inParallel";
import { differentReasons } from "./reasons";

/** A bar that cancels the selected tasks after the user has confirmed. */
export function BulkCancel({ ids, onDone }: { ids: string[]; onDone: () => void }) {
  const [isConfirming, setConfirming] = useState(false);
  const [outcome, setOutcome] = useState("");
  const [isBusy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    const failures = await cancelAll(ids);
    setBusy(false);
    setConfirming(false);
    const canceled = `${counted(ids.length - failures.length, "task")} canceled.`;
    setOutcome(failures.length ? `${canceled} ${failures.length} not canceled: ${differentReasons(failures)}` : canceled);
    onDone();
  };
  return (
    <div class="bulk row">
      <p role="status">{ids.length ? `${counted(ids.length, "task")} selected` : outcome}</p>
      {ids.length > 0 && !isConfirming && (
        <button type="button" class="danger" onClick={() => setConfirming(true)}>
          Cancel selected tasks
        </button>
      )}
      {ids.length > 0 && isConfirming && (
        <>
          <button type="button" class="danger" disabled={isBusy} onClick={() => void cancel()}>
            Yes, cancel {counted(ids.length, "task")}
          </button>
          <button type="button" class="quiet" onClick={() => setConfirming(false)}>
            Keep them
          </button>
        </>
      )}
    </div>
  );
}

/** Cancel tasks; for each task that could not be canceled, return the reason. */
async function cancelAll(ids: string[]): Promise<string[]> {
  const failures: string[] = [];
  await inParallel(ids, (id) =>
    perform({ name: "cancel", id }).catch((error: unknown) => failures.push(describe(error))),
  );
  return failures;
}
