import type { JsonObject, StreamEvent } from "./types";
import { isObject } from "./values";

export interface Progress {
  /** Fraction from 0 to 1; undefined if only a text is reported. */
  fraction?: number;
  label?: string;
}

/** The progress in an event: `progress` in metadata or data, or the text of a working status. */
export function progressOf(event: StreamEvent): Progress | null {
  if (event.kind === "status") {
    const message = event.status.message;
    const label = message?.parts.find((part) => part.text !== undefined)?.text;
    const sources = [event.metadata, message?.metadata, ...(message?.parts.map((part) => part.data) ?? [])];
    const fraction = sources.map((source) => (isObject(source) ? fractionIn(source) : undefined)).find(isKnown);
    return event.status.state === "working" && (isKnown(fraction) || label) ? { fraction, label } : null;
  }
  if (event.kind !== "artifact") return null;
  const sources = [event.metadata, event.artifact.metadata, ...event.artifact.parts.map((p) => p.data)];
  const fraction = sources.map((source) => (isObject(source) ? fractionIn(source) : undefined)).find(isKnown);
  return isKnown(fraction) ? { fraction, label: undefined } : null;
}

/** Whether *event* is a progress report from an agent of this project. The task does not keep the message of the report. */
export const isProgressReport = (event: StreamEvent): boolean =>
  event.kind === "status" && isObject(event.metadata?.apcore) && event.metadata.apcore.progress === true;

const isKnown = (fraction: number | undefined): fraction is number => fraction !== undefined;

function fractionIn(source: JsonObject): number | undefined {
  const { progress } = source;
  if (typeof progress === "number") {
    return fractionOf(progress, typeof source.total === "number" ? source.total : undefined);
  }
  if (!isObject(progress)) return undefined;
  const done = progress.current ?? progress.done ?? progress.value ?? progress.progress;
  return typeof done === "number"
    ? fractionOf(done, typeof progress.total === "number" ? progress.total : undefined)
    : undefined;
}

function fractionOf(done: number, total?: number): number | undefined {
  // without a total, a number above 1 is a percentage
  const fraction = total ? done / total : done > 1 ? done / 100 : done;
  return Number.isFinite(fraction) ? Math.min(Math.max(fraction, 0), 1) : undefined;
}

