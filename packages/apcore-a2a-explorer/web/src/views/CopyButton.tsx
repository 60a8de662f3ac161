import { useState } from "preact/hooks";
import { Icon } from "./Icon";

const OUTCOME_TIME = 4000; // milliseconds for which the outcome is shown

/** A button that copies *text*. The button shows *label*, or only an icon. */
export function CopyButton({ text, label, iconOnly = false }: { text: string; label: string; iconOnly?: boolean }) {
  const [outcome, setOutcome] = useState<"" | "Copied" | "Copying is blocked">("");
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    setOutcome(isCopied ? "Copied" : "Copying is blocked");
    setTimeout(() => setOutcome(""), OUTCOME_TIME);
  };
  return (
    <>
      <button
        type="button"
        class={iconOnly ? "quiet icon-button" : ""}
        aria-label={iconOnly ? label : undefined}
        title={label}
        onClick={() => void copy()}
      >
        {iconOnly ? <Icon name={outcome === "Copied" ? "done" : "copy"} /> : outcome || label}
      </button>
      <span class="sr" role="status">
        {outcome}
      </span>
    </>
  );
}
