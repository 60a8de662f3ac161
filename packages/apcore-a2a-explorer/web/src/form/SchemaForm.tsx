import { useMemo } from "preact/hooks";
import type { FieldError } from "../protocol/errors";
import type { Json, JsonObject } from "../protocol/types";
import { isObject } from "../protocol/values";
import { Form, type FieldProps } from "./context";
import { Field } from "./Field";
import { kindOf } from "./fields";
import { Members } from "./ObjectField";
import { resolve } from "./resolve";

interface Props {
  /** Prefix of the ids of the form's elements. */
  id: string;
  schema: JsonObject;
  data: JsonObject;
  errors: FieldError[];
  onChange: (data: JsonObject) => void;
}

/** A form for a JSON Schema. The view around the form validates and sends the data. */
export function SchemaForm({ id, schema, data, errors, onChange }: Props) {
  const context = useMemo(() => ({ id, root: schema, errors: byField(errors) }), [id, schema, errors]);
  const root = resolve(schema, schema);
  const field: FieldProps = {
    schema,
    value: data,
    path: [],
    label: "Input",
    required: true,
    onChange: (value: Json | undefined) => onChange(isObject(value) ? value : {}),
  };
  return (
    <Form.Provider value={context}>
      <div class="schema-form">
        {kindOf(root, schema) === "object" ? <Members field={field} schema={root} /> : <Field {...field} />}
      </div>
    </Form.Provider>
  );
}

function byField(errors: FieldError[]): Map<string, string[]> {
  const messages = new Map<string, string[]>();
  for (const { field, message } of errors) {
    messages.set(field, [...new Set([...(messages.get(field) ?? []), message])]);
  }
  return messages;
}
