/** Whether requests and responses are what the definition of their protocol version says. */

import { EventParser } from "./sse";
import type { Version } from "./types";
import { isObject } from "./values";
import wireTypes from "./wireTypes.json";

interface Definition {
  /** The types of the parameters and of the result of each method. */
  methods: Record<string, string[]>;
  types: Record<string, string | Record<string, string | string[]>>;
}
const DEFINITIONS = wireTypes as unknown as Record<Version, Definition>;
const MAX_MISMATCHES = 20;

/** What is wrong in a request; null if the definition does not have its method. */
export function checkRequest(version: Version, method: string, body: string): string[] | null {
  const definition = DEFINITIONS[version];
  if (!Object.hasOwn(definition.methods, method)) return null;
  const request = parsed(body);
  if (!isObject(request)) return ["not a JSON object"];
  return [
    ...envelopeErrors(request),
    ...new Checker(definition).check(request.params ?? {}, definition.methods[method]![0]!, "params"),
  ];
}

/** What is wrong in a response, or in the frames of a stream; null if its method is unknown. */
export function checkResponse(
  version: Version,
  method: string,
  body: string,
  isStream: boolean,
): string[] | null {
  const definition = DEFINITIONS[version];
  if (!Object.hasOwn(definition.methods, method)) return null;
  const type = definition.methods[method]![1]!;
  if (!isStream) return responseErrors(definition, type, body);
  const frames = new EventParser().feed(body);
  return frames
    .flatMap(({ data }, index) => responseErrors(definition, type, data).map((each) => `frame ${index + 1}: ${each}`))
    .slice(0, MAX_MISMATCHES);
}

function responseErrors(definition: Definition, type: string, body: string): string[] {
  const response = parsed(body);
  if (!isObject(response)) return ["not a JSON object"];
  const errors = envelopeErrors(response);
  const checker = new Checker(definition);
  if ("error" in response === "result" in response) return [...errors, "exactly one of result and error is needed"];
  if (!("error" in response)) return [...errors, ...checker.check(response.result, type, "result")];
  const { error } = response;
  if (!isObject(error)) return [...errors, "error: object expected"];
  return [
    ...errors,
    ...(Number.isInteger(error.code) ? [] : ["error.code: integer expected"]),
    ...(typeof error.message === "string" ? [] : ["error.message: string expected"]),
  ];
}

/** What JSON-RPC 2.0 asks of requests and responses. */
function envelopeErrors(source: Record<string, unknown>): string[] {
  const hasId = source.id === null || ["string", "number"].includes(typeof source.id);
  return [
    ...(source.jsonrpc === "2.0" ? [] : ['jsonrpc: "2.0" expected']),
    ...(hasId ? [] : ["id: string, number or null expected"]),
  ];
}

function parsed(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

const KINDS: Record<string, (value: unknown) => boolean> = {
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

  constructor(private readonly definition: Definition) {}

  /** Return what is wrong in *value*, each with its path. */
  check(value: unknown, type: string, path: string): string[] {
    this.#value(value, type, path);
    return this.#errors.slice(0, MAX_MISMATCHES);
  }

  #value(value: unknown, type: string, path: string): void {
    if (this.#errors.length >= MAX_MISMATCHES) return;
    if (type.includes("|")) return this.#alternatives(value, type.split("|"), path);
    if (type.endsWith("[]")) {
      if (!Array.isArray(value)) return this.#expect("list", value, path);
      return value.forEach((each, index) => this.#value(each, type.slice(0, -2), `${path}[${index}]`));
    }
    if (type.endsWith("{}")) {
      if (!isObject(value)) return this.#expect("object", value, path);
      return Object.entries(value).forEach(([name, each]) => this.#value(each, type.slice(0, -2), `${path}.${name}`));
    }
    if (type.startsWith("=")) {
      if (value !== type.slice(1)) this.#expect(`"${type.slice(1)}"`, value, path);
    } else if (Object.hasOwn(KINDS, type)) {
      if (!KINDS[type]!(value)) this.#expect(type, value, path);
    } else {
      const named = this.definition.types[type]!;
      if (typeof named === "string") this.#value(value, named, path);
      else this.#object(value, type, named, path);
    }
  }

  #object(value: unknown, name: string, members: Record<string, string | string[]>, path: string): void {
    if (!isObject(value)) return this.#expect(name, value, path);
    for (const [member, type] of Object.entries(members)) {
      if (typeof type !== "string") {
        const given = type.filter((each) => this.#isGiven(value, each, members[each]));
        if (given.length !== 1) this.#add(`${path}: exactly one of ${type.join(", ")} is needed`);
      } else if (this.#isGiven(value, member, type)) {
        this.#value(value[member], type.replace(/!$/, ""), `${path}.${member}`);
      } else if (type.endsWith("!")) this.#add(`${path}.${member}: is missing`);
    }
  }

  /** Whether a member is present; in 1.0, null is as good as none (ProtoJSON). */
  #isGiven(value: Record<string, unknown>, member: string, type: unknown): boolean {
    const mayBeNull = this.definition !== DEFINITIONS["1.0"] || type === "any";
    return Object.hasOwn(value, member) && (value[member] !== null || mayBeNull);
  }

  /** Report the errors of the alternative that fits best: the one with the fewest. */
  #alternatives(value: unknown, types: string[], path: string): void {
    if (types.every((each) => each.startsWith("="))) {
      const options = types.map((each) => each.slice(1));
      if (!options.includes(value as string)) this.#expect(`one of ${options.join(", ")}`, value, path);
      return;
    }
    const results = types.map((each) => new Checker(this.definition).check(value, each, path));
    const wrongKind = (errors: string[]) => errors.filter((each) => each.startsWith(`${path}.kind:`)).length;
    const [best] = results.sort((one, other) => wrongKind(one) - wrongKind(other) || one.length - other.length);
    best!.forEach((each) => this.#add(each));
  }

  #expect(expected: string, value: unknown, path: string): void {
    const shown = JSON.stringify(value) ?? "nothing";
    this.#add(`${path}: ${expected} expected, not ${shown.length > 60 ? `${shown.slice(0, 60)}…` : shown}`);
  }

  #add(error: string): void {
    this.#errors.push(error);
  }
}
