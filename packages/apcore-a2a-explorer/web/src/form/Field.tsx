import type { ComponentType } from "preact";
import { useContext } from "preact/hooks";
import { Boundary } from "../parts/Boundary";
import { Form, type FieldProps } from "./context";
import { kindOf, MAX_DEPTH, type Kind } from "./fields";
import { FileField } from "./FileField";
import { AnyField, BooleanField, ChoiceField, DateField, NumberField, TextField, type InputProps } from "./inputs";
import { ChecksField, ListField, TupleField } from "./lists";
import { ObjectField } from "./ObjectField";
import { resolve } from "./resolve";
import { UnionField } from "./UnionField";

const LongTextField = (props: InputProps) => <TextField {...props} long />;

const FIELDS: Record<Kind, ComponentType<InputProps>> = {
  text: TextField,
  "long text": LongTextField,
  number: NumberField,
  boolean: BooleanField,
  choice: ChoiceField,
  checks: ChecksField,
  date: DateField,
  file: FileField,
  list: ListField,
  tuple: TupleField,
  object: ObjectField,
  union: UnionField,
  any: AnyField,
};

/**
 * The field for a schema. It becomes a JSON field if rendering fails, or if it is nested too deeply
 * or cannot show the value.
 */
export function Field(field: FieldProps) {
  const { root } = useContext(Form);
  const { default: defaultValue, ...rest } = resolve(field.schema, root);
  // the default of a required member is filled in; other defaults are only shown as a hint
  const schema = defaultValue === undefined || field.required ? rest : { ...rest, default: defaultValue };
  const kind = kindOf(schema, root, field.path.at(-1));
  const isDeep = field.path.length > MAX_DEPTH;
  const Input = isDeep || !canShow(kind, field.value) ? AnyField : FIELDS[kind];
  return (
    <Boundary key={kind} instead={() => <AnyField field={field} schema={schema} />}>
      <Input field={field} schema={schema} />
    </Boundary>
  );
}

/** Whether a kind of field can show a value. */
function canShow(kind: Kind, value: FieldProps["value"]): boolean {
  if (value === undefined || value === null || kind === "union" || kind === "any") return true;
  if (kind === "object") return typeof value === "object" && !Array.isArray(value);
  if (kind === "list" || kind === "tuple" || kind === "checks") return Array.isArray(value);
  if (kind === "choice") return true;
  if (kind === "boolean") return typeof value === "boolean";
  return typeof value !== "object" && (kind === "number" ? typeof value !== "boolean" : typeof value === "string");
}
