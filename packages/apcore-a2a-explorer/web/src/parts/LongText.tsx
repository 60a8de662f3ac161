import { useState } from "preact/hooks";
import { counted } from "./counted";

const INITIAL_LIMIT = 20_000; // characters

/** Preformatted text; a long text is cut, with a button to show more of it. */
export function LongText({ text, code = false }: { text: string; code?: boolean }) {
  const [limit, setLimit] = useState(INITIAL_LIMIT);
  const rest = text.length - limit;
  return (
    <>
      <pre class={code ? "code" : "plain"} tabIndex={0}>
        {rest > 0 ? text.slice(0, limit) : text}
      </pre>
      {rest > 0 && (
        <button type="button" class="quiet small" onClick={() => setLimit(limit * 4)}>
          Show more ({counted(rest, "character")} left)
        </button>
      )}
    </>
  );
}
