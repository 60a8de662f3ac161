import { useMemo, useState } from "preact/hooks";
import type { Json } from "../protocol/types";
import { pretty } from "../protocol/values";
import { CopyButton } from "./CopyButton";
import { JsonTree, Tools } from "./JsonTree";
import { isLarger, search } from "./search";

const MAX_UNSEARCHED = 15; // members of a tree without a search field

interface Picked {
  path: string;
  value: Json;
}

/** A JSON value as a tree that can be searched, and whose paths and values can be copied. */
export function Tree({ value, open }: { value: Json; open?: number }) {
  const [query, setQuery] = useState("");
  const [picked, setPicked] = useState<Picked | null>(null);
  const isSearchable = useMemo(() => isLarger(value, MAX_UNSEARCHED), [value]);
  const phrase = query.trim().toLowerCase();
  const found = useMemo(() => (phrase ? search(value, phrase) : null), [value, phrase]);
  const tools = useMemo(
    () => ({
      found: found && { ...found, phrase },
      pick: (path: string, chosen: Json) => setPicked({ path, value: chosen }),
    }),
    [found, phrase],
  );
  return (
    <>
      {isSearchable && (
        <p class="tree-search">
          <input
            type="search"
            aria-label="Search names and values"
            placeholder="Search names and values"
            value={query}
            onInput={(event) => setQuery(event.currentTarget.value)}
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
          <CopyButton text={() => textToCopy(picked.value)} label="Copy value" />
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
const textToCopy = (value: Json) => (typeof value === "string" ? value : pretty(value));
