import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import type { Json } from "../protocol/types";
import { matches, pathTo, type SearchResult } from "./search";

const INITIAL_LIMIT = 100; // members
const MAX_STRING = 2000; // characters

interface TreeTools {
  /** The result of a search, and the phrase in lower case; null without a search. */
  found: (SearchResult & { phrase: string }) | null;
  pick: (path: string, value: Json) => void;
}

/** The search and the copy buttons of a tree; null for a tree without them. */
export const Tools = createContext<TreeTools | null>(null);

interface Props {
  value: Json;
  name?: string;
  /** The number of levels that are open at first. */
  open?: number;
  path?: string;
}

/** A JSON value as a tree; the members of closed branches are not rendered. */
export function JsonTree({ value, name, open = 2, path = "$" }: Props) {
  if (value === null || typeof value !== "object") {
    return (
      <div class="leaf">
        <Name name={name} />
        <Scalar value={value} />
        <Pick path={path} value={value} />
      </div>
    );
  }
  return <Branch value={value} name={name} open={open} path={path} />;
}

/** A button that offers to copy a member. */
function Pick({ path, value }: { path: string; value: Json }) {
  const tools = useContext(Tools);
  if (!tools) return null;
  return <button type="button" class="pick" aria-label={`Copy ${path}`} onClick={() => tools.pick(path, value)} />;
}

type Container = Json[] | { [name: string]: Json };

function Branch({ value, name, open, path }: { value: Container; name?: string; open: number; path: string }) {
  const found = useContext(Tools)?.found;
  // whether the user has opened or closed the branch, for each phrase searched for
  const [choices, setChoices] = useState(new Map<string, boolean>());
  const [limit, setLimit] = useState(INITIAL_LIMIT);
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  if (!size) {
    return (
      <div class="leaf">
        <Name name={name} />
        <span class="muted">{Array.isArray(value) ? "[]" : "{}"}</span>
      </div>
    );
  }
  const phrase = found?.phrase ?? "";
  const holdsMatch = found?.holders.has(value);
  const isOpen = choices.get(phrase) ?? holdsMatch ?? open > 0;
  const keys = isOpen ? shownKeys(value, holdsMatch ? found : null) : [];
  return (
    <div class="branch">
      <button type="button" class="twig" aria-expanded={isOpen} onClick={() => setChoices(new Map(choices).set(phrase, !isOpen))}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <Name name={name} />
        <span class="muted">{Array.isArray(value) ? `[ ${size} ]` : `{ ${size} }`}</span>
      </button>
      <Pick path={path} value={value} />
      {isOpen && (
        <div class="children">
          {keys.slice(0, limit).map((key) => (
            <JsonTree
              key={key}
              name={String(key)}
              value={(value as Record<string | number, Json>)[key]!}
              open={open - 1}
              path={pathTo(path, key)}
            />
          ))}
          {keys.length > limit && (
            <button type="button" class="quiet small" onClick={() => setLimit(limit + 5 * INITIAL_LIMIT)}>
              Show more ({(keys.length - limit).toLocaleString()} left)
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/** The keys of the members to show: all, or those in which something was found. */
function shownKeys(value: Container, found: TreeTools["found"] | undefined): (string | number)[] {
  const keys = Array.isArray(value) ? Array.from(value.keys()) : Object.keys(value);
  if (!found) return keys;
  return keys.filter((key) => {
    const member = (value as Record<string | number, Json>)[key]!;
    return found.holders.has(member) || matches(typeof key === "string" ? key : "", member, found.phrase);
  });
}

const Name = ({ name }: { name?: string }) =>
  name === undefined ? null : <span class="name">{escapeBidi(name)}: </span>;

const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Escape bidirectional control characters, because they would reorder the text. */
export const escapeBidi = (source: string) =>
  source.replace(BIDI_CONTROLS, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A value without members, as JSON. */
export function Scalar({ value }: { value: null | boolean | number | bigint | string }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class={`json-${typeof value}`}>{String(value)}</span>;
  const isTruncated = !isWhole && value.length > MAX_STRING;
  return (
    <span class="json-string">
      {escapeBidi(JSON.stringify(isTruncated ? value.slice(0, MAX_STRING) : value))}
      {isTruncated && (
        <button type="button" class="quiet small" onClick={() => setWhole(true)}>
          … show all {value.length.toLocaleString()} characters
        </button>
      )}
    </span>
  );
}
