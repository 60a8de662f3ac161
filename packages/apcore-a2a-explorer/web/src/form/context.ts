import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Json, JsonObject } from "../protocol/types";
import { toJson } from "../protocol/json";
import { text } from "../protocol/values";

export interface FormContext {
  id: string;
  root: JsonObject;
  /** The messages for each field, by the field's path, joined with dots. */
  errors: Map<string, string[]>;
}

export const Form = createContext<FormContext>({ id: "form", root: {}, errors: new Map() });

export interface FieldProps {
  /** The member's schema as it was written; `resolve` follows its references. */
  schema: Json | undefined;
  value: Json | undefined;
  path: string[];
  label: string;
  required: boolean;
  /** Whether a list, map or union around the field can remove it. */
  isItem?: boolean;
  /** The name of an additional input of the field; `quiet` if only the field's own input shows errors. */
  part?: { name: string; quiet: boolean };
  onChange: (value: Json | undefined) => void;
}

/** The ids, messages and texts that connect a field with its label, hint and errors. */
export function useField({ path, required, part }: FieldProps, schema: JsonObject) {
  const { id, errors } = useContext(Form);
  const baseId = [id, ...path.map((step) => step.replaceAll(/[^\w-]/g, "_"))].join("_");
  const fieldId = part ? `${baseId}__${part.name}` : baseId;
  const messages = part?.quiet ? [] : (errors.get(path.join(".")) ?? []);
  const hint = [text(schema.description), text(schema.markdownDescription)].find(Boolean);
  const describedBy = [
    ...(hint ? [`${fieldId}__hint`] : []),
    ...(messages.length ? [`${fieldId}__error`] : []),
  ];
  return {
    fieldId,
    messages,
    hint,
    /** Attributes of the field's element. */
    aria: {
      "aria-describedby": describedBy.join(" ") || undefined,
      "aria-invalid": messages.length ? ("true" as const) : undefined,
      "aria-required": required ? ("true" as const) : undefined,
    },
  };
}

/** The value of an emptied field: null if it is required and may be null, else undefined. */
export const emptyOf = (schema: JsonObject, required: boolean): Json | undefined =>
  required && schema.nullable ? null : undefined;

const MAX_DEFAULT = 60; // characters of a default that are shown

/** A text that names the default, which is used if a field is left empty. */
export function defaultHint({ default: value }: JsonObject): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "object" && !Object.keys(value).length) return "empty by default";
  const source = typeof value === "string" ? value || "empty" : toJson(value);
  return `${source.length > MAX_DEFAULT ? `${source.slice(0, MAX_DEFAULT)}…` : source} by default`;
}
