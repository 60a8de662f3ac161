import { useState } from "preact/hooks";
import type { Json } from "../protocol/types";

const STEP = 100; // members
const MAX_STRING = 2000; // characters

/** A JSON value as a tree; closed branches are not rendered. */
export function JsonTree({ value, name, open = 2 }: { value: Json; name?: string; open?: number }) {
  if (value === null || typeof value !== "object") {
    return (
      <div class="leaf">
        <Name name={name} />
        <Scalar value={value} />
      </div>
    );
  }
  return <Branch value={value} name={name} open={open} />;
}

type Tree = Json[] | { [name: string]: Json };

function Branch({ value, name, open }: { value: Tree; name?: string; open: number }) {
  const [opened, setOpened] = useState(open > 0);
  const [shown, setShown] = useState(STEP);
  const names = Array.isArray(value) ? null : Object.keys(value);
  const size = names?.length ?? (value as Json[]).length;
  const summary = names ? `{ ${size} }` : `[ ${size} ]`;
  if (!size) {
    return (
      <div class="leaf">
        <Name name={name} />
        <span class="muted">{names ? "{}" : "[]"}</span>
      </div>
    );
  }
  return (
    <div class="branch">
      <button type="button" class="twig" aria-expanded={opened} onClick={() => setOpened(!opened)}>
        <span aria-hidden="true">{opened ? "▾" : "▸"}</span> <Name name={name} />
        <span class="muted">{summary}</span>
      </button>
      {opened && (
        <div class="children">
          {Array.from({ length: Math.min(size, shown) }, (_, index) => {
            const key = names ? names[index]! : index;
            const child = (value as Record<string | number, Json>)[key]!;
            return <JsonTree key={key} name={String(key)} value={child} open={open - 1} />;
          })}
          {size > shown && (
            <button type="button" class="quiet small" onClick={() => setShown(shown + 5 * STEP)}>
              Show more ({(size - shown).toLocaleString()} left)
            </button>
          )}
        </div>
      )}
    </div>
  );
}

const Name = ({ name }: { name?: string }) =>
  name === undefined ? null : <span class="name">{escaped(name)}: </span>;

const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** *source* with bidirectional control characters escaped, so that they do not reorder it. */
const escaped = (source: string) =>
  source.replace(BIDI_CONTROLS, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, "0")}`);

function Scalar({ value }: { value: null | boolean | number | string }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class={`json-${typeof value}`}>{String(value)}</span>;
  const truncated = !whole && value.length > MAX_STRING;
  return (
    <span class="json-string">
      {escaped(JSON.stringify(truncated ? value.slice(0, MAX_STRING) : value))}
      {truncated && (
        <button type="button" class="quiet small" onClick={() => setWhole(true)}>
          … show all {value.length.toLocaleString()} characters
        </button>
      )}
    </span>
  );
}
