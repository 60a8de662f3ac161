import type { OutputUnit } from "@cfworker/json-schema";
import type { Json, JsonObject } from "../protocol/types";
import { text } from "../protocol/values";

const CHOICES = new Set(["anyOf", "oneOf"]);

/** For each anyOf and oneOf, keep only the errors of the branch that was probably meant. */
export function relevantErrors(units: OutputUnit[]): OutputUnit[] {
  const choice = units.find((unit) => CHOICES.has(unit.keyword));
  if (!choice) return units;
  const errorsWithin = units.filter((unit) => isWithin(unit, choice));
  const others = units.filter((unit) => unit !== choice && !errorsWithin.includes(unit));
  return [...relevantErrors(others), ...relevantErrors(likelyBranch(choice, errorsWithin))];
}

function isWithin(unit: OutputUnit, choice: OutputUnit): boolean {
  const { keywordLocation, instanceLocation } = unit;
  const isInValue = `${instanceLocation}/`.startsWith(`${choice.instanceLocation}/`);
  return isInValue && keywordLocation.startsWith(`${choice.keywordLocation}/`);
}

function likelyBranch(choice: OutputUnit, errorsWithin: OutputUnit[]): OutputUnit[] {
  if (/\((?!0 )\d+ matches\)/.test(choice.error)) {
    return [{ ...choice, keyword: "", error: "This matches several options, but must match exactly one." }];
  }
  const typeErrors = errorsWithin.filter((unit) => isTypeError(unit, choice));
  const fittingBranches = errorsByBranch(choice, errorsWithin).filter((errors) => !errors.some((unit) => typeErrors.includes(unit)));
  const best = fittingBranches.sort((left, right) => distance(left) - distance(right))[0];
  return best ?? joinTypeErrors(typeErrors);
}

function errorsByBranch(choice: OutputUnit, errorsWithin: OutputUnit[]): OutputUnit[][] {
  const branches = new Map<string, OutputUnit[]>();
  for (const unit of errorsWithin) {
    const index = unit.keywordLocation.slice(choice.keywordLocation.length).split("/")[1]!;
    branches.set(index, [...(branches.get(index) ?? []), unit]);
  }
  return [...branches.values()];
}

/** The distance of a value from a branch: a missing member or a wrong constant counts twice. */
const distance = (units: OutputUnit[]) =>
  units.reduce((sum, { keyword }) => sum + (keyword === "required" || keyword === "const" ? 2 : 1), 0);

/** Join type errors (keyword `type`) into one that names all expected types. */
function joinTypeErrors([first, ...more]: OutputUnit[]): OutputUnit[] {
  if (!first) return [];
  const types = more.flatMap((unit) => expectedTypes(unit.error).map((type) => `, "${type}"`));
  return [{ ...first, error: first.error.replace(/\.$/, `${types.join("")}.`) }];
}

const isTypeError = (unit: OutputUnit, choice: OutputUnit) =>
  unit.keyword === "type" && unit.instanceLocation === choice.instanceLocation;

const expectedTypes = (error: string) =>
  [...(error.split(" Expected ")[1] ?? "").matchAll(/"(\w+)"/g)].map(([, name]) => name!);

/** A readable message for an error. */
export function messageOf(unit: OutputUnit, schema: JsonObject): string {
  if (unit.keyword === "required") return "This is required.";
  if (unit.keyword === "additionalProperties") return "This property is not in the skill's schema.";
  if (unit.keyword === "false") return "This is not allowed.";
  if (unit.keyword === "pattern") {
    return `This does not match the pattern ${stringAt(schema, unit.keywordLocation) ?? "of the schema"}.`;
  }
  if (unit.keyword !== "type") return unit.error;
  if (unit.error.startsWith('Instance type "null"')) return "This must not be empty.";
  const names = expectedTypes(unit.error).filter((name) => name !== "null");
  return `This must be ${names.map(withArticle).join(" or ") || "empty"}.`;
}

const withArticle = (noun: string) => `${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun}`;

/** The string at *location* of *schema*; undefined if the location leads through a reference. */
function stringAt(schema: JsonObject, location: string): string | undefined {
  const steps = location.split("/").slice(1);
  const value = steps.reduce<Json | undefined>(
    (value, step) => (value as JsonObject | undefined)?.[step.replaceAll("~1", "/").replaceAll("~0", "~")],
    schema,
  );
  return text(value);
}
