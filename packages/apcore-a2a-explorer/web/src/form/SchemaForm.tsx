import FormBase from "@rjsf/core";
import type { ComponentType } from "preact";
import { useMemo } from "preact/hooks";
import type { FieldError } from "../protocol/errors";
import type { JsonObject } from "../protocol/types";
import { filled, formSchema, uiSchema } from "./schema";
import { templates } from "./Templates";
import { errorSchema, validator } from "./validator";

const Form = FormBase as unknown as ComponentType<Record<string, unknown>>;

interface Props {
  id: string;
  schema: JsonObject;
  data: JsonObject;
  errors: FieldError[];
  onChange: (data: JsonObject) => void;
}

/** A form for a JSON Schema. The view around it validates and sends the data, not the form. */
export function SchemaForm({ id, schema, data, errors, onChange }: Props) {
  const shown = useMemo(() => {
    const { title: _, description: __, ...rest } = formSchema(schema);
    return rest;
  }, [schema]);
  const ui = useMemo(() => ({ ...uiSchema(shown), "ui:label": false }), [shown]);
  const extraErrors = useMemo(() => errorSchema(errors), [errors]);
  return (
    <Form
      tagName="div"
      className="schema-form"
      idPrefix={id}
      schema={shown}
      uiSchema={ui}
      formData={data}
      validator={validator}
      templates={templates}
      extraErrors={extraErrors}
      noValidate
      showErrorList={false}
      noHtml5Validate
      experimental_defaultFormStateBehavior={{
        emptyObjectFields: "skipDefaults",
        arrayMinItems: { populate: "requiredOnly" },
      }}
      onChange={({ formData }: { formData?: JsonObject }) => onChange(filled(formData ?? {}))}
    >
      <></>
    </Form>
  );
}
