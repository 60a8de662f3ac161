/** Checks of requests and responses against the definition of their protocol version. */

import { EventParser } from "./sse";
import type { Version } from "./types";
import { isObject } from "./values";
import wireTypes from "./wireTypes.json";

interface Definition {
  /** For each method, two types: of its `params` and of its result. */
  methods: Record<string, string[]>;
  /** The types by name; tools/wire_types.py writes them, and explains their notation. */
  types: Record<string, string | Record<string, string | string[]>>;
}
const DEFINITIONS = wireTypes as unknown as Record<Version, Definition>;
const MAX_FINDINGS = 20; // limit of the errors shown, and of the unknown members shown
const MAX_UNKNOWN = 1_000; // unknown members of one object
/** The key of a type's list of members, exactly one of which must be present. */
const ONE_OF = "?";

/** The findings of a check. Most begin with the path of a member. */
export interface Findings {
  /** Violations of the definition. */
  errors: string[];
  /** Members that the definition does not have; receivers ignore them. */
  unknown: string[];
}

/** Check a request; null if the definition does not have *method*. */
export function checkRequest(version: Version, method: string, body: string): Findings | null {
  const definition = DEFINITIONS[version];
  if (!Object.hasOwn(definition.methods, method)) return null;
  const request = parsed(body);
  if (!isObject(request)) return NOT_AN_OBJECT;
  return bounded([
    checkEnvelope(request, ["method", "params"]),
    new Checker(definition).check(request.params ?? {}, definition.methods[method]![0]!, "params"),
  ]);
}

/** Check a response, or the frames of a stream; null if the definition does not have *method*. */
export function checkResponse(version: Version, method: string, body: string, isStream: boolean): Findings | null {
  const definition = DEFINITIONS[version];
  if (!Object.hasOwn(definition.methods, method)) return null;
  const type = definition.methods[method]![1]!;
  if (!isStream) return bounded(responseFindings(definition, type, body));
  const frames = new EventParser().feed(body);
  return bounded(
    frames.flatMap(({ data }, index) =>
      responseFindings(definition, type, data).map(({ errors, unknown }) => ({
        errors: errors.map((error) => `frame ${index + 1}: ${error}`),
        unknown: unknown.map((path) => `frame ${index + 1}: ${path}`),
      })),
    ),
  );
}

/** The versions whose format an Agent Card has; 1.0 if it has neither. */
export function versionsOfCard(card: Record<string, unknown>): Version[] {
  const versions: Version[] = [];
  if (Object.hasOwn(card, "supportedInterfaces") || !Object.hasOwn(card, "url")) versions.push("1.0");
  if (Object.hasOwn(card, "url")) versions.push("0.3");
  return versions;
}

/** Check an Agent Card against each version whose format it has. A member is unknown if none of these versions has it. */
export function checkCard(card: unknown): Findings {
  if (!isObject(card)) return NOT_AN_OBJECT;
  const versions = versionsOfCard(card);
  const findings = versions.map((version) => new Checker(DEFINITIONS[version]).check(card, "AgentCard", "card"));
  const errors = findings.flatMap((finding, index) => finding.errors.map((error) => `${versions[index]}: ${error}`));
  const [first, ...others] = findings;
  const unknown = first!.unknown.filter((path) => others.every((finding) => finding.unknown.includes(path)));
  return bounded([{ errors, unknown }]);
}

const NOT_AN_OBJECT: Findings = { errors: ["not a JSON object"], unknown: [] };

/** Join findings; keep at most MAX_FINDINGS errors and MAX_FINDINGS unknown members. */
const bounded = (all: Findings[]): Findings => ({
  errors: all.flatMap((findings) => findings.errors).slice(0, MAX_FINDINGS),
  unknown: all.flatMap((findings) => findings.unknown).slice(0, MAX_FINDINGS),
});

function responseFindings(definition: Definition, type: string, body: string): Findings[] {
  const response = parsed(body);
  if (!isObject(response)) return [NOT_AN_OBJECT];
  const envelope = checkEnvelope(response, ["result", "error"]);
  if ("error" in response === "result" in response) {
    return [envelope, { errors: ["exactly one of result and error is needed"], unknown: [] }];
  }
  if (!("error" in response)) return [envelope, new Checker(definition).check(response.result, type, "result")];
  const { error } = response;
  if (!isObject(error)) return [envelope, { errors: ["error: object expected"], unknown: [] }];
  const errors = [
    ...(Number.isInteger(error.code) ? [] : ["error.code: integer expected"]),
    ...(typeof error.message === "string" ? [] : ["error.message: string expected"]),
  ];
  const unknown = unknownNames(error, ["code", "message", "data"]).map((name) => `error.${name}`);
  return [envelope, { errors, unknown }];
}

/** Check a JSON-RPC 2.0 request or response; *members* are allowed besides `jsonrpc` and `id`. */
function checkEnvelope(source: Record<string, unknown>, members: string[]): Findings {
  const hasId = source.id === null || ["string", "number"].includes(typeof source.id);
  const errors = [
    ...(source.jsonrpc === "2.0" ? [] : ['jsonrpc: "2.0" expected']),
    ...(hasId ? [] : ["id: string, number or null expected"]),
  ];
  return { errors, unknown: unknownNames(source, ["jsonrpc", "id", ...members]) };
}

const unknownNames = (source: Record<string, unknown>, known: string[]) =>
  Object.keys(source).filter((name) => !known.includes(name));

function parsed(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

const PRIMITIVES: Record<string, (value: unknown) => boolean> = {
  any: () => true,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  object: isObject,
  null: (value) => value === null,
};

class Checker {
  #errors: string[] = [];
  #unknown: string[] = [];

  constructor(private readonly definition: Definition) {}

  check(value: unknown, type: string, path: string): Findings {
    this.#value(value, type, path);
    return { errors: this.#errors, unknown: this.#unknown };
  }

  #value(value: unknown, type: string, path: string): void {
    if (this.#errors.length >= MAX_FINDINGS) return;
    if (type.includes("|")) return this.#alternatives(value, type.split("|"), path);
    if (type.endsWith("[]")) {
      if (!Array.isArray(value)) return this.#expect("list", value, path);
      return value.forEach((item, index) => this.#value(item, type.slice(0, -2), `${path}[${index}]`));
    }
    if (type.endsWith("{}")) {
      if (!isObject(value)) return this.#expect("object", value, path);
      return Object.entries(value).forEach(([name, member]) => this.#value(member, type.slice(0, -2), `${path}.${name}`));
    }
    if (type.startsWith("=")) {
      if (value !== type.slice(1)) this.#expect(`"${type.slice(1)}"`, value, path);
    } else if (Object.hasOwn(PRIMITIVES, type)) {
      if (!PRIMITIVES[type]!(value)) this.#expect(type, value, path);
    } else {
      const namedType = this.definition.types[type]!;
      if (typeof namedType === "string") this.#value(value, namedType, path);
      else this.#object(value, type, namedType, path);
    }
  }

  #object(value: unknown, name: string, members: Record<string, string | string[]>, path: string): void {
    if (!isObject(value)) return this.#expect(name, value, path);
    for (const [member, type] of Object.entries(members)) {
      if (typeof type !== "string") {
        // *member* is ONE_OF, and *type* lists members
        const present = type.filter((alternative) => this.#isGiven(value, alternative, members[alternative]));
        if (present.length !== 1) this.#add(`${path}: exactly one of ${type.join(", ")} is needed`);
      } else if (this.#isGiven(value, member, type)) {
        this.#value(value[member], type.replace(/!$/, ""), `${path}.${member}`);
      } else if (type.endsWith("!")) this.#add(`${path}.${member}: is missing`);
    }
    const isKnown = (member: string) => member !== ONE_OF && Object.hasOwn(members, member);
    const unknown = Object.keys(value).filter((member) => !isKnown(member));
    this.#unknown.push(...unknown.slice(0, MAX_UNKNOWN).map((member) => `${path}.${member}`));
  }

  /** Whether a member is present; in 1.0, null counts as absent (ProtoJSON). */
  #isGiven(value: Record<string, unknown>, member: string, type: unknown): boolean {
    const mayBeNull = this.definition !== DEFINITIONS["1.0"] || type === "any";
    return Object.hasOwn(value, member) && (value[member] !== null || mayBeNull);
  }

  /** Report the findings of the alternative that fits best: by its `kind`, then by the number of errors. */
  #alternatives(value: unknown, types: string[], path: string): void {
    if (types.every((alternative) => alternative.startsWith("="))) {
      const options = types.map((alternative) => alternative.slice(1));
      if (!options.includes(value as string)) this.#expect(`one of ${options.join(", ")}`, value, path);
      return;
    }
    const results = types.map((alternative) => new Checker(this.definition).check(value, alternative, path));
    const wrongKindCount = ({ errors }: Findings) => errors.filter((error) => error.startsWith(`${path}.kind:`)).length;
    const [best] = results.sort(
      (left, right) =>
        wrongKindCount(left) - wrongKindCount(right) ||
        left.errors.length - right.errors.length ||
        left.unknown.length - right.unknown.length,
    );
    best!.errors.forEach((error) => this.#add(error));
    this.#unknown.push(...best!.unknown);
  }

  #expect(expected: string, value: unknown, path: string): void {
    const shown = JSON.stringify(value) ?? "nothing";
    this.#add(`${path}: ${expected} expected, not ${shown.length > 60 ? `${shown.slice(0, 60)}…` : shown}`);
  }

  #add(error: string): void {
    this.#errors.push(error);
  }
}
