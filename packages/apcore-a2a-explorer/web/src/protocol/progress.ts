import type { JsonObject, StreamEvent } from "./types";
import { isObject } from "./values";

export interface Progress {
  /** From 0 to 1; undefined where only a text is reported. */
  part?: number;
  label?: string;
}

/** Progress, where the module reports one: a member `progress` in metadata or data. */
export function progressOf(event: StreamEvent): Progress | null {
  if (event.kind === "status") {
    const said = event.status.message;
    const label = said?.parts.find((part) => part.text !== undefined)?.text;
    const sources = [event.metadata, said?.metadata, ...(said?.parts.map((part) => part.data) ?? [])];
    const part = sources.map((each) => (isObject(each) ? ratio(each) : undefined)).find(known);
    return event.status.state === "working" && (known(part) || label) ? { part, label } : null;
  }
  if (event.kind !== "artifact") return null;
  const sources = [event.metadata, event.artifact.metadata, ...event.artifact.parts.map((p) => p.data)];
  const part = sources.map((each) => (isObject(each) ? ratio(each) : undefined)).find(known);
  return known(part) ? { part, label: undefined } : null;
}

const known = (part: number | undefined): part is number => part !== undefined;

function ratio(source: JsonObject): number | undefined {
  const { progress } = source;
  if (typeof progress === "number") {
    return share(progress, typeof source.total === "number" ? source.total : undefined);
  }
  if (!isObject(progress)) return undefined;
  const done = progress.current ?? progress.done ?? progress.value ?? progress.progress;
  return typeof done === "number"
    ? share(done, typeof progress.total === "number" ? progress.total : undefined)
    : undefined;
}

function share(done: number, total?: number): number | undefined {
  const part = total ? done / total : done > 1 ? done / 100 : done;
  return Number.isFinite(part) ? Math.min(Math.max(part, 0), 1) : undefined;
}

