import { signal, type Signal } from "@preact/signals";
import { hasForm, initialData } from "../form/fields";
import { takesText, type Example, type Skill } from "../protocol/card";
import type { FieldError } from "../protocol/errors";
import type { JsonObject, Part } from "../protocol/types";
import { parseJson } from "../protocol/json";
import { isObject, pretty, unsendableNumber } from "../protocol/values";
import { keepInSession } from "./session";

export type InputKind = "data" | "text" | "files";

export interface FileInput {
  name: string;
  type: string;
  size: number;
  base64: string;
}

/** The user's input for a skill. The form and the JSON editor show the same `data`. */
export interface Draft {
  kind: Signal<InputKind>;
  data: Signal<JsonObject>;
  json: Signal<string>;
  jsonError: Signal<string>;
  text: Signal<string>;
  files: Signal<FileInput[]>;
  contextId: Signal<string>;
  webhook: Signal<string>;
  token: Signal<string>;
  errors: Signal<FieldError[]>;
}

/**
 * The members of a draft that survive a reload. The files are left out because they may be large, the
 * token because it is a secret.
 */
type StoredDraft = Record<"kind" | "json" | "text" | "contextId" | "webhook", string>;

const drafts = new Map<string, Draft>();
const stored: Map<string, StoredDraft> = keepInSession("drafts", () => {
  const openDrafts = [...drafts].map(([id, draft]): [string, StoredDraft] => [id, storable(draft)]);
  // newest first, because keepInSession drops the last entries if the total is too large
  return [...openDrafts.reverse(), ...[...stored].filter(([id]) => !drafts.has(id))];
});

const storable = (draft: Draft): StoredDraft => ({
  kind: draft.kind.value,
  json: draft.json.value,
  text: draft.text.value,
  contextId: draft.contextId.value,
  webhook: draft.webhook.value,
});

export function draftOf(skill: Skill): Draft {
  const existing = drafts.get(skill.id);
  if (existing) return existing;
  const data = initialData(skill.inputSchema);
  const isTextOnly = !hasForm(skill.inputSchema) && takesText(skill);
  const draft: Draft = {
    kind: signal<InputKind>(isTextOnly ? "text" : "data"),
    data: signal(data),
    json: signal(pretty(data)),
    jsonError: signal(""),
    text: signal(""),
    files: signal<FileInput[]>([]),
    contextId: signal(""),
    webhook: signal(""),
    token: signal(""),
    errors: signal<FieldError[]>([]),
  };
  drafts.set(skill.id, draft);
  restore(draft, stored.get(skill.id));
  return draft;
}

function restore(draft: Draft, earlier: StoredDraft | undefined): void {
  if (!earlier) return;
  // files are not kept
  if (earlier.kind !== "files") draft.kind.value = earlier.kind as InputKind;
  draft.text.value = earlier.text;
  draft.contextId.value = earlier.contextId;
  draft.webhook.value = earlier.webhook;
  setJson(draft, earlier.json);
}

/** Fill in the input of an earlier message; return whether the draft can show this input. */
export function showParts(draft: Draft, parts: Part[]): boolean {
  const [part, ...more] = parts;
  if (!part || more.length) return false;
  draft.errors.value = [];
  if (part.text !== undefined) {
    draft.kind.value = "text";
    draft.text.value = part.text;
    return true;
  }
  if (!isObject(part.data)) return false;
  draft.kind.value = "data";
  setData(draft, part.data);
  return true;
}

export function setData(draft: Draft, data: JsonObject): void {
  draft.data.value = data;
  draft.json.value = pretty(data);
  draft.jsonError.value = "";
}

export function setJson(draft: Draft, source: string): void {
  draft.json.value = source;
  try {
    const data: unknown = parseJson(source);
    if (!isObject(data)) throw new SyntaxError("The input must be a JSON object: { … }");
    const large = unsendableNumber(source);
    if (large) throw new RangeError(`${shorten(large)} is too large for a number`);
    draft.data.value = data;
    draft.jsonError.value = "";
  } catch (error) {
    draft.jsonError.value = (error as Error).message;
  }
}

const shorten = (digits: string) => (digits.length > 40 ? `${digits.slice(0, 40)}…` : digits);

export function applyExample(draft: Draft, example: Example): void {
  draft.errors.value = [];
  if (isObject(example.inputs)) {
    draft.kind.value = "data";
    setData(draft, example.inputs);
  } else {
    draft.kind.value = "text";
    draft.text.value = typeof example.inputs === "string" ? example.inputs : (example.text ?? "");
  }
}

export function partsOf(draft: Draft): Part[] {
  if (draft.kind.value === "text") return [{ text: draft.text.value }];
  if (draft.kind.value === "data") return [{ data: draft.data.value }];
  return draft.files.value.map((file) => ({
    raw: file.base64,
    filename: file.name,
    mediaType: file.type || "application/octet-stream",
  }));
}
