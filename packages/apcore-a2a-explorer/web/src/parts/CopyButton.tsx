import { useState } from "preact/hooks";

interface Props {
  /** The text to copy, or a function that returns it. */
  text: string | (() => string);
  label: string;
}

/** A button that copies a text, and says whether that worked. */
export function CopyButton({ text, label }: Props) {
  const [outcome, setOutcome] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      setOutcome("Copied.");
    } catch {
      setOutcome("The browser blocked copying.");
    }
    setTimeout(() => setOutcome(""), 4000);
  };
  return (
    <>
      <button type="button" class="quiet small" onClick={() => void copy()}>
        {label}
      </button>
      <span role="status" class="muted">
        {outcome}
      </span>
    </>
  );
}
