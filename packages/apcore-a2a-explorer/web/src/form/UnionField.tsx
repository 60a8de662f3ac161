import { useContext, useState } from "preact/hooks";
import { defaultHint, emptyOf, Form } from "./context";
import { Field } from "./Field";
import { branchesOf, branchFor, branchNames, initialValueOf, kindOf } from "./fields";
import { Frame } from "./Frame";
import type { InputProps } from "./inputs";
import { Members } from "./ObjectField";
import { fits } from "./validator";

/** A value of one of several types: a choice of the type, and the field for the chosen type. */
export function UnionField({ field, schema }: InputProps) {
  const { root } = useContext(Form);
  const [chosen, setChosen] = useState(-1);
  const branches = branchesOf(schema, root);
  const names = branchNames(branches, root);
  const index = branchFor(field.value, branches, chosen, (branch, value) => fits(branch, value, root), root);
  const branch = branches[index];
  const isObject = branch !== undefined && kindOf(branch, root) === "object";
  const part = { name: "type", quiet: branch !== undefined && !isObject };
  const choose = (next: number) => {
    setChosen(next);
    field.onChange((next < 0 ? undefined : initialValueOf(branches[next], root)) ?? emptyOf(schema, field.required));
  };
  return (
    <>
      <Frame field={{ ...field, part }} schema={schema}>
        {({ fieldId, aria }) => (
          <select
            id={fieldId}
            {...aria}
            value={String(index)}
            onChange={(event) => choose(Number(event.currentTarget.value))}
          >
            <option value="-1">{defaultHint(schema) ?? (field.required ? "Choose…" : "Not given")}</option>
            {names.map((name, position) => (
              <option key={position} value={String(position)}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Frame>
      {branch && (
        <div class="branch-fields" key={index}>
          {isObject ? (
            <Members field={field} schema={branch} />
          ) : (
            <Field {...field} schema={branch} label={names[index]!} required={false} isItem />
          )}
        </div>
      )}
    </>
  );
}
