import { useContext } from "preact/hooks";
import { toJson } from "../protocol/json";
import type { Json, JsonObject } from "../protocol/types";
import { text } from "../protocol/values";
import { defaultHint, emptyOf, Form, type FieldProps } from "./context";
import { Field } from "./Field";
import { FilesDrop } from "./FileField";
import { initialValueOf, kindOf, optionsOf, prefixOf, restOf, sameJson } from "./fields";
import { Group } from "./Frame";
import type { InputProps } from "./inputs";
import { resolve } from "./resolve";

export const ListField = ({ field, schema }: InputProps) => (
  <Group field={field} schema={schema}>
    {() => <Items field={field} schema={schema} itemSchema={schema.items ?? true} from={0} />}
  </Group>
);

/** A tuple: a field for each of its items, then a list if further items are allowed. */
export function TupleField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const value = itemsOf(field.value);
  const prefix = prefixOf(schema);
  const rest = restOf(schema);
  return (
    <Group field={field} schema={schema}>
      {() => (
        <>
          {prefix.map((itemSchema, index) => {
            const title = text(resolve(itemSchema, root).title);
            return (
              <Field
                key={index}
                schema={itemSchema}
                value={value[index] ?? undefined}
                path={[...field.path, String(index)]}
                label={title ?? `${index + 1}.`}
                required={field.required}
                onChange={(item) => field.onChange(tupleOf(value, index, item, prefix.length) ?? emptyOf(schema, field.required))}
              />
            );
          })}
          {rest !== undefined && <Items field={field} schema={schema} itemSchema={rest} from={prefix.length} />}
        </>
      )}
    </Group>
  );
}

/** A tuple with one item changed, and null for missing items; undefined if all are null. */
export function tupleOf(value: Json[], index: number, item: Json | undefined, length: number): Json[] | undefined {
  const items = Array.from({ length: Math.max(length, value.length) }, (_, position) =>
    position === index ? (item ?? null) : (value[position] ?? null),
  );
  return items.some((entry) => entry !== null) ? items : undefined;
}

const itemsOf = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : []);

interface ItemsProps extends InputProps {
  itemSchema: Json;
  /** The index of the first item shown. */
  from: number;
}

function Items({ field, schema, itemSchema, from }: ItemsProps) {
  const { root } = useContext(Form);
  const value = itemsOf(field.value);
  const item = resolve(itemSchema, root);
  const isFile = kindOf(item, root) === "file";
  const write = (items: Json[]) => writeItems(field, items);
  const add = (...items: Json[]) => write([...padTo(value, from), ...items]);
  const maxItems = typeof schema.maxItems === "number" ? schema.maxItems : Infinity;
  return (
    <>
      {value.slice(from).map((entry, offset) => {
        const index = from + offset;
        return (
          <div class="item" key={index}>
            <Field
              schema={itemSchema}
              value={entry}
              path={[...field.path, String(index)]}
              label={itemLabel(item, index)}
              required={false}
              isItem
              onChange={(changed) => write(value.with(index, changed ?? null))}
            />
            <Buttons value={value} index={index} from={from} write={write} label={itemLabel(item, index)} />
          </div>
        );
      })}
      <p class="add-line">
        <button
          type="button"
          class="quiet small"
          aria-label={`Add to ${field.label}`}
          disabled={value.length >= maxItems}
          onClick={() => add(initialValueOf(itemSchema, root) ?? null)}
        >
          + Add
        </button>{" "}
        {!value.length && <span class="muted">{defaultHint(schema) ?? "Not given"}</span>}
        {value.length >= maxItems && <span class="muted">At most {maxItems}</span>}
      </p>
      {isFile && <FilesDrop field={field} schema={item} add={add} />}
    </>
  );
}

const padTo = (value: Json[], length: number) => [
  ...value,
  ...Array.from({ length: Math.max(0, length - value.length) }, () => null),
];

const itemLabel = (item: JsonObject, index: number) =>
  text(item.title) && !item.properties ? `${text(item.title)} ${index + 1}` : `${index + 1}.`;

interface ButtonsProps {
  value: Json[];
  index: number;
  from: number;
  write: (items: Json[]) => void;
  label: string;
}

function Buttons({ value, index, from, write, label }: ButtonsProps) {
  const swapWith = (other: number) => value.with(index, value[other]!).with(other, value[index]!);
  return (
    <div class="buttons">
      {value.length - from > 1 && (
        <>
          <button
            type="button"
            class="quiet small"
            aria-label={`Move up ${label}`}
            disabled={index === from}
            onClick={() => write(swapWith(index - 1))}
          >
            ↑
          </button>
          <button
            type="button"
            class="quiet small"
            aria-label={`Move down ${label}`}
            disabled={index === value.length - 1}
            onClick={() => write(swapWith(index + 1))}
          >
            ↓
          </button>
        </>
      )}
      <button
        type="button"
        class="quiet small"
        aria-label={`Remove ${label}`}
        onClick={() => write(value.toSpliced(index, 1))}
      >
        Remove
      </button>
    </div>
  );
}

/** A list of values from a fixed set, as checkboxes. */
export function ChecksField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const options = optionsOf(resolve(schema.items, root), root) ?? [];
  const value = itemsOf(field.value);
  const isListed = (entry: Json) => options.some((option) => sameJson(option.value, entry));
  // checkboxes cannot show a repeated value, or a value that is not an option
  if (new Set(value.map((entry) => toJson(entry))).size < value.length || !value.every(isListed)) {
    return <ListField field={field} schema={schema} />;
  }
  const toggle = (option: Json) => {
    const isChosen = value.some((entry) => sameJson(entry, option));
    const chosen = isChosen ? value.filter((entry) => !sameJson(entry, option)) : [...value, option];
    writeItems(field, chosen);
  };
  return (
    <Group field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <>
          {options.map((option, index) => (
            <label key={index} class="check breakable">
              <input
                id={`${fieldId}__${index}`}
                type="checkbox"
                aria-invalid={aria["aria-invalid"]}
                checked={value.some((entry) => sameJson(entry, option.value))}
                onChange={() => toggle(option.value)}
              />{" "}
              {option.label}
            </label>
          ))}
          {!value.length && defaultHint(schema) && <p class="hint">{defaultHint(schema)}</p>}
        </>
      )}
    </Group>
  );
}

/** Set the items of a field; an optional field without items is left out. */
const writeItems = (field: FieldProps, items: Json[]) =>
  field.onChange(items.length ? items : field.required ? [] : undefined);
