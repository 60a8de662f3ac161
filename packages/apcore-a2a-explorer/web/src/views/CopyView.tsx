import { useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { LongText } from "../parts/LongText";
import { asCurl, asJavaScript, asJson, asPython } from "../protocol/copy";
import type { Operation, Version } from "../protocol/types";
import { target } from "../state/agent";
import { DIALECTS, version } from "../state/settings";

const FORMATS = { curl: asCurl, Python: asPython, JavaScript: asJavaScript, JSON: asJson };
type Format = keyof typeof FORMATS;

interface CopyProps {
  operation: Operation;
  lastEventId?: string;
  /** The protocol version that is selected at first; by default, the one selected in the header. */
  initialVersion?: Version;
}

interface Props extends CopyProps {
  title?: string;
}

/** A request to copy, collapsed at first. */
export function CopyView({ title = "Copy this request", ...request }: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="copy" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && <CopyBox {...request} />}
    </details>
  );
}

/** A request to copy, always shown. */
export const CopySection = (request: CopyProps) => (
  <div class="copy" role="group" aria-labelledby="copies">
    <h3 id="copies">Copy this request</h3>
    <CopyBox {...request} />
  </div>
);

/** A request in the chosen format and version. */
function CopyBox({ operation, lastEventId, initialVersion }: CopyProps) {
  const [format, setFormat] = useState<Format>("curl");
  const [chosenVersion, setChosenVersion] = useState(initialVersion);
  const shownVersion = chosenVersion ?? version.value;
  const [outcome, setOutcome] = useState("");
  const source = FORMATS[format](DIALECTS[shownVersion], operation, target(shownVersion, lastEventId));
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(source);
      setOutcome("Copied.");
    } catch {
      setOutcome("The browser blocked copying. Select the text and copy it.");
    }
    setTimeout(() => setOutcome(""), 4000);
  };
  return (
    <>
      <div class="row">
        <Choice label="Format" options={["curl", "Python", "JavaScript", "JSON"]} value={format} onChange={setFormat} />
        <Choice label="Version" options={["1.0", "0.3"]} value={shownVersion} onChange={setChosenVersion} />
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <span role="status" class="muted">
          {outcome}
        </span>
      </div>
      <LongText text={source} code />
    </>
  );
}
