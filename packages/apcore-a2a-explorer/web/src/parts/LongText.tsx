import { useState } from "preact/hooks";

const STEP = 20_000;

/** Text as it is; of a long one the beginning, and more when it is asked for. */
export function LongText({ text, code = false }: { text: string; code?: boolean }) {
  const [shown, setShown] = useState(STEP);
  const rest = text.length - shown;
  return (
    <>
      <pre class={code ? "code" : "plain"} tabIndex={0}>
        {rest > 0 ? text.slice(0, shown) : text}
      </pre>
      {rest > 0 && (
        <button type="button" class="quiet small" onClick={() => setShown(shown * 4)}>
          Show more ({rest.toLocaleString()} characters are left)
        </button>
      )}
    </>
  );
}
