import { useContext, useId, useState } from "preact/hooks";
import type { Json, JsonObject } from "../protocol/types";
import { isObject, strings } from "../protocol/values";
import { defaultHint, emptyOf, Form, type FieldProps } from "./context";
import { Field } from "./Field";
import { constantsOf, furtherOf, holdsFile, initialValueOf, labelOf, MAX_OPEN_DEPTH, orderOf, propertiesOf, sameJson } from "./fields";
import { FileMembers } from "./FileField";
import { Group } from "./Frame";
import type { InputProps } from "./inputs";
import { resolve } from "./resolve";

/** An object. The user can add and remove an optional one; the entries of a map are always shown. */
export function ObjectField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const { value, path, required, isItem = false } = field;
  const isAdded = isObject(value);
  const isMap = !Object.keys(propertiesOf(schema)).length && furtherOf(schema) !== undefined;
  const isOptional = !isItem && !isMap && (!required || schema.nullable === true);
  const isOpen = isAdded || isItem || isMap || (!isOptional && path.length <= MAX_OPEN_DEPTH);
  return (
    <Group field={field} schema={schema}>
      {() =>
        isOpen ? (
          <>
            {isAdded && isOptional && (
              <button
                type="button"
                class="quiet small remove"
                aria-label={`Remove ${field.label}`}
                onClick={() => field.onChange(emptyOf(schema, required))}
              >
                Remove
              </button>
            )}
            <Members field={isMap ? omitEmptyMap(field, schema) : field} schema={schema} />
          </>
        ) : (
          <p class="add-line">
            <button
              type="button"
              class="quiet small"
              aria-label={`Add ${field.label}`}
              onClick={() => field.onChange(initialValueOf(schema, root) ?? {})}
            >
              + Add
            </button>{" "}
            <span class="muted">{value === null ? "null" : (defaultHint(schema) ?? "Not given")}</span>
          </p>
        )
      }
    </Group>
  );
}

/** The field of a map; if optional, the map is left out when its last entry is removed. */
const omitEmptyMap = (field: FieldProps, schema: JsonObject): FieldProps => ({
  ...field,
  onChange: (value) => {
    const isEmpty = isObject(value) && !Object.keys(value).length;
    field.onChange(isEmpty && !field.required ? emptyOf(schema, field.required) : value);
  },
});

/** The fields of an object's members: those of its schema, then those that only the data has. */
export function Members({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const object = isObject(field.value) ? field.value : {};
  const constants = constantsOf(schema, root);
  const required = strings(schema.required);
  const change = (members: JsonObject) => field.onChange({ ...constants, ...members });
  const isFile = holdsFile(schema);
  const names = orderOf(schema).filter((name) => !isHidden(name, object, constants));
  return (
    <>
      {isFile && <FileMembers field={field} schema={schema} object={object} change={change} />}
      {names
        .filter((name) => !isFile || name !== "bytes")
        .map((name) => {
          const member = propertiesOf(schema)[name]!;
          return (
            <Field
              key={name}
              schema={member}
              value={memberOf(object, name)}
              path={[...field.path, name]}
              label={labelOf(name, member, resolve(member, root))}
              required={required.includes(name)}
              onChange={(value) => change(withMember(object, name, value, orderOf(schema)))}
            />
          );
        })}
      <FurtherMembers field={field} schema={schema} object={object} change={change} />
    </>
  );
}

const memberOf = (object: JsonObject, name: string) => (Object.hasOwn(object, name) ? object[name] : undefined);

/** Whether a member is a constant that is set, or will be set with the first change. */
function isHidden(name: string, object: JsonObject, constants: JsonObject): boolean {
  const value = memberOf(object, name);
  return Object.hasOwn(constants, name) && (value === undefined || sameJson(value, constants[name]));
}

/** A copy of *object* with a member changed, added as *order* says, or removed if *value* is undefined. */
export function withMember(object: JsonObject, name: string, value: Json | undefined, order: string[]): JsonObject {
  const entries = Object.entries(object);
  const index = entries.findIndex(([key]) => key === name);
  if (value === undefined) return Object.fromEntries(entries.filter(([key]) => key !== name));
  if (index >= 0) entries[index] = [name, value];
  else entries.splice(placeOf(name, entries, order), 0, [name, value]);
  return Object.fromEntries(entries);
}

function placeOf(name: string, entries: [string, Json][], order: string[]): number {
  const later = new Set(order.slice(order.indexOf(name) + 1));
  const index = order.includes(name) ? entries.findIndex(([key]) => later.has(key)) : -1;
  return index < 0 ? entries.length : index;
}

interface FurtherProps extends InputProps {
  object: JsonObject;
  change: (members: JsonObject) => void;
}

/** The members that the schema does not name: the entries of a map, or unknown ones. */
function FurtherMembers({ field, schema, object, change }: FurtherProps) {
  const known = propertiesOf(schema);
  const further = furtherOf(schema);
  const names = Object.keys(object).filter((name) => !Object.hasOwn(known, name));
  return (
    <>
      {names.map((name, index) => (
        <div class="entry" key={index}>
          <Name
            name={name}
            isTaken={(newName) => Object.hasOwn(object, newName)}
            rename={(newName) => change(renameMember(object, name, newName))}
          />
          <Field
            schema={further ?? true}
            value={object[name]}
            path={[...field.path, name]}
            label="Value"
            required={false}
            isItem
            onChange={(value) => change(withMember(object, name, value ?? null, []))}
          />
          <button
            type="button"
            class="quiet small"
            aria-label={`Remove ${name}`}
            onClick={() => change(withMember(object, name, undefined, []))}
          >
            Remove
          </button>
        </div>
      ))}
      {further !== undefined && <NewMember field={field} further={further} object={object} change={change} />}
    </>
  );
}

const renameMember = (object: JsonObject, name: string, newName: string) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key === name ? newName : key, value]));

interface NameProps {
  name: string;
  isTaken: (name: string) => boolean;
  rename: (name: string) => void;
}

function Name({ name, isTaken, rename }: NameProps) {
  const id = useId();
  const [error, setError] = useState("");
  return (
    <div class="key">
      <label for={id}>Name</label>
      <input
        id={id}
        defaultValue={name}
        key={name}
        aria-invalid={error ? "true" : undefined}
        onChange={({ currentTarget }) => {
          const clashes = currentTarget.value !== name && isTaken(currentTarget.value);
          setError(clashes ? "This name is taken." : "");
          if (!clashes) rename(currentTarget.value);
        }}
      />
      <span class="error-line" role="status">
        {error}
      </span>
    </div>
  );
}

interface NewMemberProps {
  field: FieldProps;
  further: Json;
  object: JsonObject;
  change: (members: JsonObject) => void;
}

function NewMember({ field, further, object, change }: NewMemberProps) {
  const { root } = useContext(Form);
  const [name, setName] = useState("");
  const [error, setError] = useState("");
  const add = () => {
    if (!name) return setError("Enter a name first.");
    if (Object.hasOwn(object, name)) return setError("This name is taken.");
    change(withMember(object, name, initialValueOf(further, root) ?? null, []));
    setName("");
    setError("");
  };
  return (
    <div class="add-member">
      <input
        aria-label={`New name in ${field.label}`}
        placeholder="Name"
        value={name}
        onInput={(event) => (setName(event.currentTarget.value), setError(""))}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          add();
        }}
      />
      <button type="button" class="quiet small" aria-label={`Add to ${field.label}`} onClick={add}>
        + Add
      </button>
      <span class="error-line" role="status">
        {error}
      </span>
    </div>
  );
}
