import { useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { LongText } from "../parts/LongText";
import { asCurl, asJavaScript, asJson, asPython } from "../protocol/copy";
import type { Operation, Version } from "../protocol/types";
import { target } from "../state/agent";
import { DIALECTS, version } from "../state/settings";

const FORMATS = { curl: asCurl, Python: asPython, JavaScript: asJavaScript, JSON: asJson };
type Format = keyof typeof FORMATS;

interface CopiesProps {
  operation: Operation;
  lastEventId?: string;
  /** The version in which the request was sent; selected at first. */
  used?: Version;
}

interface Props extends CopiesProps {
  title?: string;
}

/** A request to copy, collapsed at first. */
export function CopyView({ title = "Copy this request", ...copied }: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="copy" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && <CopyBox {...copied} />}
    </details>
  );
}

/** A request to copy, always shown. */
export const Copies = (copied: CopiesProps) => (
  <div class="copy" role="group" aria-labelledby="copies">
    <h3 id="copies">Copy this request</h3>
    <CopyBox {...copied} />
  </div>
);

/** A request in each format and version. */
function CopyBox({ operation, lastEventId, used }: CopiesProps) {
  const [format, setFormat] = useState<Format>("curl");
  const [choice, setChoice] = useState(used);
  const chosen = choice ?? version.value;
  const [copied, setCopied] = useState("");
  const source = FORMATS[format](DIALECTS[chosen], operation, target(chosen, lastEventId));
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(source);
      setCopied("Copied.");
    } catch {
      setCopied("The browser blocked copying. Select the text and copy it.");
    }
    setTimeout(() => setCopied(""), 4000);
  };
  return (
    <>
      <div class="row">
        <Choice label="Format" options={["curl", "Python", "JavaScript", "JSON"]} value={format} onChange={setFormat} />
        <Choice label="Version" options={["1.0", "0.3"]} value={chosen} onChange={setChoice} />
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <span role="status" class="muted">
          {copied}
        </span>
      </div>
      <LongText text={source} code />
    </>
  );
}
