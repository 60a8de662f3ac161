import { useMemo, useState } from "preact/hooks";
import type { Json } from "../protocol/types";
import { pretty } from "../protocol/values";
import { CopyButton } from "./CopyButton";
import { JsonTree, Tools } from "./JsonTree";
import { isLarger, search } from "./search";

const MAX_UNSEARCHED = 15; // members; there is a search field for more

interface Picked {
  path: string;
  value: Json;
}

/** A JSON value as a tree that can be searched, and whose paths and values can be copied. */
export function Tree({ value, open }: { value: Json; open?: number }) {
  const [words, setWords] = useState("");
  const [picked, setPicked] = useState<Picked | null>(null);
  const isSearchable = useMemo(() => isLarger(value, MAX_UNSEARCHED), [value]);
  const found = useMemo(() => (words.trim() ? search(value, words.trim()) : null), [value, words]);
  const tools = useMemo(
    () => ({
      found: found && { ...found, words: words.trim().toLowerCase() },
      pick: (path: string, chosen: Json) => setPicked({ path, value: chosen }),
    }),
    [found, words],
  );
  return (
    <>
      {isSearchable && (
        <p class="tree-search">
          <input
            type="search"
            aria-label="Search names and values"
            placeholder="Search names and values"
            value={words}
            onInput={(event) => setWords(event.currentTarget.value)}
          />
          <span role="status" class="muted">
            {found && `${found.count.toLocaleString()} found`}
          </span>
        </p>
      )}
      {picked && (
        <p class="picked">
          <code class="breakable">{picked.path}</code>
          <CopyButton text={picked.path} label="Copy path" />
          <CopyButton text={() => copyText(picked.value)} label="Copy value" />
        </p>
      )}
      <div class="tree">
        <Tools.Provider value={tools}>
          <JsonTree value={value} open={open} />
        </Tools.Provider>
      </div>
    </>
  );
}

/** The text of a copied value: a string as it is, anything else as JSON. */
const copyText = (value: Json) => (typeof value === "string" ? value : pretty(value));
