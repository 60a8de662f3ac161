import { useContext, useState } from "preact/hooks";
import type { Json, JsonObject } from "../protocol/types";
import { parseJson } from "../protocol/json";
import { pretty, text, unsendableNumber } from "../protocol/values";
import { defaultHint, emptyOf, Form, type FieldProps } from "./context";
import { dateInput } from "./dates";
import { isDecimal, optionsOf, sameJson } from "./fields";
import { Frame } from "./Frame";
import { isExact, numberOf } from "./numbers";

export interface InputProps {
  field: FieldProps;
  /** The field's schema with its references followed. */
  schema: JsonObject;
}

const EXAMPLES: Record<string, string> = {
  duration: "P1DT2H",
  uuid: "00000000-0000-4000-8000-000000000000",
  ipv4: "192.0.2.1",
  ipv6: "2001:db8::1",
};

export function TextField({ field, schema, long = false }: InputProps & { long?: boolean }) {
  const { value } = field;
  const format = text(schema.format) ?? "";
  const write = (typed: string) => field.onChange(typed === "" ? emptyOf(schema, field.required) : typed);
  const shown = typeof value === "string" ? value : value === undefined || value === null ? "" : pretty(value);
  const hint = defaultHint(schema);
  const placeholder = hint ?? (Object.hasOwn(EXAMPLES, format) ? `Such as ${EXAMPLES[format]}` : undefined);
  const isLong = long || shown.includes("\n") || shown.length > 120;
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) =>
        isLong ? (
          <textarea
            id={fieldId}
            {...aria}
            rows={4}
            placeholder={placeholder}
            value={shown}
            onInput={(event) => write(event.currentTarget.value)}
          />
        ) : (
          <input
            id={fieldId}
            {...aria}
            inputMode={format === "email" ? "email" : format === "uri" ? "url" : undefined}
            placeholder={placeholder}
            value={shown}
            autocomplete="off"
            onInput={(event) => write(event.currentTarget.value)}
          />
        )
      }
    </Frame>
  );
}

export function NumberField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const [typed, setTyped] = useState("");
  const mayBeString = isDecimal(schema, root);
  const { value } = field;
  // show the typed text, such as 1.50, as long as its value is the field's value
  const isTyped = sameJson(numberOf(typed, mayBeString) ?? null, value ?? null);
  const shown = isTyped ? typed : value === undefined || value === null ? "" : String(value);
  const isLossy = typeof value === "number" && typed !== "" && isTyped && !isExact(typed);
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <>
          <input
            id={fieldId}
            {...aria}
            class="short"
            inputMode={schema.type === "integer" ? "numeric" : "decimal"}
            autocomplete="off"
            placeholder={defaultHint(schema) ?? rangeOf(schema)}
            value={shown}
            onInput={({ currentTarget }) => {
              setTyped(currentTarget.value);
              field.onChange(numberOf(currentTarget.value, mayBeString) ?? emptyOf(schema, field.required));
            }}
          />
          {isLossy && <p class="hint">Sent as {String(value)}, because decimal numbers are rounded to about 16 digits.</p>}
        </>
      )}
    </Frame>
  );
}

/** The limits of a number, if it has both. */
function rangeOf({ minimum, maximum }: JsonObject): string | undefined {
  if (typeof minimum !== "number" || typeof maximum !== "number") return undefined;
  return `${minimum} to ${maximum}`;
}

export function BooleanField({ field, schema }: InputProps) {
  const { value } = field;
  const isGiven = typeof value === "boolean";
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria: { "aria-required": _, ...aria } }) => (
        <span class="check">
          <input
            id={fieldId}
            {...aria}
            type="checkbox"
            checked={isGiven ? value : schema.default === true}
            onChange={(event) => field.onChange(event.currentTarget.checked)}
          />{" "}
          <span class="muted">{isGiven ? String(value) : (defaultHint(schema) ?? "not given")}</span>
          {isGiven && !field.required && (
            <button type="button" class="quiet small" aria-label={`Clear ${field.label}`} onClick={() => field.onChange(undefined)}>
              Clear
            </button>
          )}
        </span>
      )}
    </Frame>
  );
}

export function ChoiceField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const options = optionsOf(schema, root) ?? [];
  const { value } = field;
  const index = options.findIndex((candidate) => sameJson(candidate.value, value));
  const isOther = index < 0 && value !== undefined && value !== null;
  const empty = defaultHint(schema) ?? (field.required ? "Choose…" : "Not given");
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <select
          id={fieldId}
          {...aria}
          value={isOther ? "other" : index < 0 ? "" : String(index)}
          onChange={({ currentTarget }) => {
            if (currentTarget.value === "other") return;
            const chosen = currentTarget.value === "" ? undefined : options[Number(currentTarget.value)];
            field.onChange(chosen ? chosen.value : emptyOf(schema, field.required));
          }}
        >
          <option value="">{empty}</option>
          {isOther && <option value="other">{`${pretty(value)} (not an option)`}</option>}
          {options.map(({ label }, position) => (
            <option key={position} value={String(position)}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Frame>
  );
}

/** A date or time. A date with a time is entered in the browser's time zone, and sent with that zone's offset; a time alone is in UTC. */
export function DateField({ field, schema }: InputProps) {
  const { value } = field;
  const { type, show, read } = dateInput(text(schema.format) ?? "");
  const shown = typeof value === "string" ? show(value) : "";
  if (shown === null) return <TextField field={field} schema={schema} />;
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <>
          <input
            id={fieldId}
            {...aria}
            class="short"
            type={type}
            step={type === "date" ? undefined : 1}
            value={shown}
            onInput={({ currentTarget }) => {
              // if the input's time is unchanged, keep the value: it may have another time zone or fractions of a second
              if (read(currentTarget.value) === read(shown)) return;
              field.onChange(read(currentTarget.value) ?? emptyOf(schema, field.required));
            }}
          />
          {typeof value === "string" && value !== shown && <p class="hint">Sent as {value}</p>}
          {shown === "" && defaultHint(schema) && <p class="hint">{defaultHint(schema)}</p>}
        </>
      )}
    </Frame>
  );
}

/** Any value as JSON. Text that is not JSON is sent as a string, and the field says so. */
export function AnyField({ field, schema }: InputProps) {
  const [typed, setTyped] = useState("");
  const { value } = field;
  const isTyped = sameJson(anyValue(typed), value);
  const shown = isTyped ? typed : value === undefined ? "" : pretty(value);
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <>
          <textarea
            id={fieldId}
            {...aria}
            class="mono"
            rows={Math.min(12, Math.max(2, shown.split("\n").length))}
            spellcheck={false}
            placeholder={defaultHint(schema) ?? "JSON or text"}
            value={shown}
            onInput={({ currentTarget }) => {
              setTyped(currentTarget.value);
              field.onChange(anyValue(currentTarget.value));
            }}
          />
          <SentAs source={shown} value={value} />
        </>
      )}
    </Frame>
  );
}

/** Parse *source*. Text that is not JSON, or has a number that cannot be sent, stays text; blank text is undefined. */
export function anyValue(source: string): Json | undefined {
  if (!source.trim()) return undefined;
  if (unsendableNumber(source) && isJson(source)) return source;
  try {
    return parseJson(source);
  } catch {
    return source;
  }
}

function isJson(source: string): boolean {
  try {
    JSON.parse(source);
    return true;
  } catch {
    return false;
  }
}

function SentAs({ source, value }: { source: string; value: Json | undefined }) {
  if (value === undefined) return null;
  const isText = typeof value === "string" && !isJson(source);
  const large = isJson(source) ? unsendableNumber(source) : undefined;
  if (large) {
    return <p class="error-line">Sent as text, because {large.slice(0, 40)} is too large for a number.</p>;
  }
  if (isText && /^\s*[{["]/.test(source)) {
    return <p class="error-line">This is not JSON yet. It is sent as text.</p>;
  }
  return <p class="hint">Sent as {isText ? "text" : nameOf(value)}.</p>;
}

function nameOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  return { object: "an object", string: "text", number: "a number", bigint: "a number" }[typeof value as string] ?? String(value);
}
