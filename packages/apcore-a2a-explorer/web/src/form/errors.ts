import type { OutputUnit } from "@cfworker/json-schema";
import type { Json, JsonObject } from "../protocol/types";
import { text } from "../protocol/values";

const CHOICES = new Set(["anyOf", "oneOf"]);

/** *units*, of the branches of anyOf and oneOf only the one that is probably meant. */
export function likely(units: OutputUnit[]): OutputUnit[] {
  const choice = units.find((unit) => CHOICES.has(unit.keyword));
  if (!choice) return units;
  const inside = units.filter((unit) => isWithin(unit, choice));
  const others = units.filter((unit) => unit !== choice && !inside.includes(unit));
  return [...likely(others), ...likely(meant(choice, inside))];
}

function isWithin(unit: OutputUnit, choice: OutputUnit): boolean {
  const { keywordLocation, instanceLocation } = unit;
  const here = `${instanceLocation}/`.startsWith(`${choice.instanceLocation}/`);
  return here && keywordLocation.startsWith(`${choice.keywordLocation}/`);
}

function meant(choice: OutputUnit, inside: OutputUnit[]): OutputUnit[] {
  if (/\((?!0 )\d+ matches\)/.test(choice.error)) {
    return [{ ...choice, keyword: "", error: "This fits more than one of the choices." }];
  }
  const mistyped = inside.filter((unit) => isType(unit, choice));
  const fitting = branchesOf(choice, inside).filter((each) => !each.some((unit) => mistyped.includes(unit)));
  const best = fitting.sort((one, other) => distance(one) - distance(other))[0];
  return best ?? joined(mistyped);
}

function branchesOf(choice: OutputUnit, inside: OutputUnit[]): OutputUnit[][] {
  const branches = new Map<string, OutputUnit[]>();
  for (const unit of inside) {
    const index = unit.keywordLocation.slice(choice.keywordLocation.length).split("/")[1]!;
    branches.set(index, [...(branches.get(index) ?? []), unit]);
  }
  return [...branches.values()];
}

/** A member that is missing, or that tells the kind, says more than one with a wrong value. */
const distance = (units: OutputUnit[]) =>
  units.reduce((sum, { keyword }) => sum + (keyword === "required" || keyword === "const" ? 2 : 1), 0);

/** One error that names all the types. */
function joined([first, ...more]: OutputUnit[]): OutputUnit[] {
  if (!first) return [];
  const types = more.flatMap((unit) => expected(unit.error).map((type) => `, "${type}"`));
  return [{ ...first, error: first.error.replace(/\.$/, `${types.join("")}.`) }];
}

const isType = (unit: OutputUnit, choice: OutputUnit) =>
  unit.keyword === "type" && unit.instanceLocation === choice.instanceLocation;

const expected = (error: string) =>
  [...(error.split(" Expected ")[1] ?? "").matchAll(/"(\w+)"/g)].map(([, name]) => name!);

/** What is wrong, for people. */
export function messageOf(unit: OutputUnit, schema: JsonObject): string {
  if (unit.keyword === "required") return "This is required.";
  if (unit.keyword === "additionalProperties") return "The skill knows no such member.";
  if (unit.keyword === "pattern") return `This does not match ${located(schema, unit.keywordLocation) ?? "the pattern"}.`;
  if (unit.keyword !== "type") return unit.error;
  if (unit.error.startsWith('Instance type "null"')) return "This is empty.";
  const names = expected(unit.error).filter((name) => name !== "null");
  return `This is no ${names.join(" or ") || "empty value"}.`;
}

/** The text at *location* of *schema*, unless references lead there. */
function located(schema: JsonObject, location: string): string | undefined {
  const steps = location.split("/").slice(1);
  const found = steps.reduce<Json | undefined>(
    (value, step) => (value as JsonObject | undefined)?.[step.replaceAll("~1", "/").replaceAll("~0", "~")],
    schema,
  );
  return text(found);
}
