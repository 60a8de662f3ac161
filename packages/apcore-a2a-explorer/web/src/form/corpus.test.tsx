// @vitest-environment happy-dom
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import type { JsonObject } from "../protocol/types";
import corpus from "./corpus/schemas.json";
import { initialData, kindOf } from "./fields";
import { resolve } from "./resolve";
import { SchemaForm } from "./SchemaForm";
import { validate } from "./validator";

interface Entry {
  name: string;
  schema: JsonObject;
  inputs: JsonObject[];
}
const entries = corpus as unknown as Entry[];

const FIELDS = "input:not([type=checkbox], [type=file], [aria-label^='New name']), textarea, select";

/** Show the form for *schema*; return its element, its fields, and the data after each change. */
function show(schema: JsonObject, data: JsonObject) {
  const host = document.body.appendChild(document.createElement("div"));
  const changes: JsonObject[] = [];
  act(() =>
    render(<SchemaForm id="form" schema={schema} data={data} errors={[]} onChange={(next) => changes.push(next)} />, host),
  );
  return { host, changes, fields: [...host.querySelectorAll<HTMLInputElement>(FIELDS)] };
}

/** Dispatch the event of a field, as if the value that it shows were entered again. */
function reenterShownValue(field: HTMLInputElement): void {
  const type = field.tagName === "SELECT" || field.closest(".key") ? "change" : "input";
  act(() => void field.dispatchEvent(new Event(type, { bubbles: true })));
}

/** Schemas with only one value: there is nothing to fill in. */
const NO_FIELDS = ["one literal"];

const choosesBranch = (field: HTMLInputElement) =>
  field.tagName === "SELECT" && field.parentElement?.nextElementSibling?.className === "branch-fields";

afterEach(() => (document.body.innerHTML = ""));

describe.each(entries)("a schema with $name", ({ name, schema, inputs }) => {
  it("has a form with a field for its value", () => {
    const { host } = show(schema, initialData(schema));
    expect(host.textContent).not.toContain("can't be displayed");
    if (NO_FIELDS.includes(name)) return;
    expect(host.querySelectorAll("input, textarea, select, button").length).toBeGreaterThan(0);
  });

  it.each(inputs)("shows %j and reads it back", (input) => {
    expect(validate(schema, input)).toEqual([]);
    const { fields } = show(schema, input);
    fields.forEach((field, index) => {
      if (choosesBranch(field)) return; // choosing the same branch again resets its fields
      const { fields: freshFields, changes } = show(schema, input);
      reenterShownValue(freshFields[index]!);
      expect(changes.at(-1) ?? input).toEqual(input);
    });
  });
});

it("has a field for JSON only for null, values of any type, and references to other documents", () => {
  const kinds = entries.map(({ name, schema }) => {
    const member = resolve((schema.properties as JsonObject).value, schema);
    return [name, kindOf(member, schema)];
  });
  const json = kinds.filter(([, kind]) => kind === "any").map(([name]) => name);
  expect(json).toEqual(["null", "any", "true", "empty", "another document"]);
});
