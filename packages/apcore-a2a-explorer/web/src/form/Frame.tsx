import type { ComponentChildren } from "preact";
import type { JsonObject } from "../protocol/types";
import { useField, type FieldProps } from "./context";

interface Props {
  field: FieldProps;
  schema: JsonObject;
  /** Renders the content, with the attributes for the input. */
  children: (input: ReturnType<typeof useField>) => ComponentChildren;
}

/** The label, hint and errors around the input of a field. */
export function Frame({ field, schema, children }: Props) {
  const input = useField(field, schema);
  return (
    <div class={`field${input.messages.length ? " wrong" : ""}`}>
      <label for={input.fieldId} class="breakable">
        {field.label}
        <Required required={field.required} />
      </label>
      <Hint input={input} />
      {children(input)}
      <Messages input={input} />
    </div>
  );
}

/** Several fields under one heading. */
export function Group({ field, schema, children }: Props) {
  const input = useField(field, schema);
  const { fieldId, aria } = input;
  return (
    <fieldset
      id={fieldId}
      class={`field group${input.messages.length ? " wrong" : ""}`}
      aria-describedby={aria["aria-describedby"]}
    >
      <legend class="breakable">
        {field.label}
        <Required required={field.required} />
      </legend>
      <Hint input={input} />
      <Messages input={input} />
      {children(input)}
    </fieldset>
  );
}

const Required = ({ required }: { required: boolean }) =>
  required ? <span class="required"> required</span> : null;

const Hint = ({ input: { hint, fieldId } }: { input: ReturnType<typeof useField> }) =>
  hint ? (
    <p class="hint breakable" id={`${fieldId}__hint`}>
      {hint}
    </p>
  ) : null;

function Messages({ input: { messages, fieldId } }: { input: ReturnType<typeof useField> }) {
  if (!messages.length) return null;
  return (
    <ul class="errors" id={`${fieldId}__error`}>
      {messages.map((message) => (
        <li key={message}>{message}</li>
      ))}
    </ul>
  );
}
