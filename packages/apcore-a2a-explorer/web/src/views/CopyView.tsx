import { useState } from "preact/hooks";
import { Choice } from "../parts/Choice";
import { LongText } from "../parts/LongText";
import { asCurl, asJavaScript, asJson, asPython } from "../protocol/copy";
import type { Operation, Version } from "../protocol/types";
import { target } from "../state/agent";
import { DIALECTS, version } from "../state/settings";

const FORMATS = { curl: asCurl, Python: asPython, JavaScript: asJavaScript, JSON: asJson };
type Format = keyof typeof FORMATS;

interface Props {
  operation: Operation;
  lastEventId?: string;
  used?: Version;
  title?: string;
  /** Whether it is open at first. */
  open?: boolean;
}

/** A request to copy, in each format and version. */
export function CopyView({ operation, lastEventId, used, title = "Copy this request", open = false }: Props) {
  const [opened, setOpened] = useState(open);
  return (
    <details class="copy" open={opened} onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>{title}</summary>
      {opened && <Copies operation={operation} lastEventId={lastEventId} used={used} />}
    </details>
  );
}

function Copies({ operation, lastEventId, used }: Props) {
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
