/** Agent Cards in the format of A2A 1.0, of 0.3, or of both. */

import type { Json, JsonObject, Version } from "./types";
import { isObject, object, objects, strings, text } from "./values";

export interface Example {
  title: string;
  description?: string;
  inputs?: Json;
  output?: Json;
  /** The message of a plain-text example, the only kind that the protocol itself has. */
  text?: string;
}

export interface Skill {
  id: string;
  name: string;
  description: string;
  tags: string[];
  inputModes: string[];
  outputModes: string[];
  examples: Example[];
  annotations: JsonObject;
  inputSchema?: JsonObject;
  outputSchema?: JsonObject;
  documentation?: string;
}

export type SecurityScheme =
  | { name: string; kind: "bearer"; description: string; hint: string }
  | { name: string; kind: "basic"; description: string; hint: string }
  | { name: string; kind: "apiKey"; description: string; hint: string; location: string; keyName: string }
  | { name: string; kind: "other"; description: string; hint: string };

export interface AgentInterface {
  url: string;
  binding: string;
  version: string;
  tenant: string;
}

export interface Extension {
  uri: string;
  description: string;
  required: boolean;
}

export interface AgentCard {
  name: string;
  description: string;
  version: string;
  provider?: { organization: string; url: string };
  documentationUrl?: string;
  interfaces: AgentInterface[];
  capabilities: { streaming: boolean; push: boolean; extendedCard: boolean };
  extensions: Extension[];
  schemes: SecurityScheme[];
  /** The alternatives for a request: each has the names of the security schemes to use together. */
  security: string[][];
  inputModes: string[];
  outputModes: string[];
  skills: Skill[];
  source: JsonObject;
}

const SKILLS_EXTENSION = /\/extensions\/skills\/v1$/;

export function readCard(source: JsonObject): AgentCard {
  const capabilities = object(source.capabilities) ?? {};
  const extensions = objects(capabilities.extensions);
  const details = object(
    object(extensions.find((extension) => SKILLS_EXTENSION.test(String(extension.uri)))?.params)?.skills,
  );
  const inputModes = strings(source.defaultInputModes);
  const outputModes = strings(source.defaultOutputModes);
  const provider = object(source.provider);
  return {
    name: text(source.name) || "Unnamed agent",
    description: text(source.description) ?? "",
    version: text(source.version) ?? "",
    provider: provider && {
      organization: text(provider.organization) ?? "",
      url: text(provider.url) ?? "",
    },
    documentationUrl: text(source.documentationUrl),
    interfaces: readInterfaces(source),
    capabilities: {
      streaming: capabilities.streaming === true,
      push: capabilities.pushNotifications === true,
      extendedCard:
        capabilities.extendedAgentCard === true || source.supportsAuthenticatedExtendedCard === true,
    },
    extensions: extensions.map((extension) => ({
      uri: text(extension.uri) ?? "",
      description: text(extension.description) ?? "",
      required: extension.required === true,
    })),
    schemes: Object.entries(object(source.securitySchemes) ?? {}).map(scheme),
    security: readRequirements(source),
    inputModes,
    outputModes,
    skills: objects(source.skills).map((skillSource) => skill(skillSource, details, inputModes, outputModes)),
    source,
  };
}

function readInterfaces(source: JsonObject): AgentInterface[] {
  const interfaces = objects(source.supportedInterfaces).map((entry) => ({
    url: text(entry.url) ?? "",
    binding: text(entry.protocolBinding) ?? "",
    version: text(entry.protocolVersion) ?? "",
    tenant: text(entry.tenant) ?? "",
  }));
  if (interfaces.length || !source.url) return interfaces;
  const version = text(source.protocolVersion) ?? "0.3";
  const preferred = { url: String(source.url), binding: text(source.preferredTransport) ?? "JSONRPC" };
  const additional = objects(source.additionalInterfaces).map((entry) => ({
    url: text(entry.url) ?? "",
    binding: text(entry.transport) ?? "",
  }));
  const isRepeated = (other: { url: string; binding: string }) =>
    other.url === preferred.url && other.binding === preferred.binding;
  return [preferred, ...additional.filter((entry) => !isRepeated(entry))].map((entry) => ({ ...entry, version, tenant: "" }));
}

/** The bindings that the page supports, best first. */
const BINDINGS = ["JSONRPC", "HTTP+JSON"];

/** The interface to use for a version; undefined if the page supports none of the card's interfaces of this version. */
export function interfaceOf({ interfaces: all }: AgentCard, version: Version): AgentInterface | undefined {
  const ofVersion = all.filter((candidate) => candidate.version.startsWith(version.slice(0, 1)));
  return BINDINGS.map((binding) => ofVersion.find((candidate) => candidate.binding === binding)).find(Boolean);
}

/** The reason why the page can't call an agent in a version. */
export function unsupportedReason({ interfaces: all }: AgentCard, version: Version): string {
  const offered = all.map((offer) => `${offer.binding || "an unnamed binding"} of A2A ${offer.version}`);
  const list = [...new Set(offered)].join(", ") || "no interface";
  return `The agent has no JSON-RPC or HTTP+JSON interface of A2A ${version}, so this page can't call it. Its card lists ${list}.`;
}

function readRequirements(source: JsonObject): string[][] {
  const v03 = objects(source.security);
  const v1 = objects(source.securityRequirements).map((requirement) => object(requirement.schemes) ?? {});
  return (v1.length ? v1 : v03).map(Object.keys);
}

function scheme([name, value]: [string, Json]): SecurityScheme {
  const source = object(value) ?? {};
  const key = object(source.apiKeySecurityScheme) ?? (source.type === "apiKey" ? source : undefined);
  const http = object(source.httpAuthSecurityScheme) ?? (source.type === "http" ? source : undefined);
  const oauth = object(source.oauth2SecurityScheme) ?? (source.type === "oauth2" ? source : undefined);
  const oidc =
    object(source.openIdConnectSecurityScheme) ??
    (source.type === "openIdConnect" ? source : undefined);
  const description = text((key ?? http ?? oauth ?? oidc ?? source).description) ?? "";
  if (key) {
    const location = text(key.location) ?? text(key.in) ?? "header";
    const keyName = text(key.name) ?? "X-API-Key";
    const hint = `API key (${location} ${keyName})`;
    return { name, kind: "apiKey", description, hint, location, keyName };
  }
  if (http) {
    const kind = text(http.scheme)?.toLowerCase() === "basic" ? "basic" : "bearer";
    return { name, kind, description, hint: `HTTP ${kind}` };
  }
  if (oauth) return { name, kind: "bearer", description, hint: "OAuth 2.0 access token" };
  if (oidc) return { name, kind: "bearer", description, hint: "OpenID Connect token" };
  return { name, kind: "other", description, hint: "mutual TLS or another scheme that your browser handles" };
}

function skill(
  source: JsonObject,
  details: JsonObject | undefined,
  inputModes: string[],
  outputModes: string[],
): Skill {
  const id = text(source.id) ?? "";
  const skillDetails = (details && Object.hasOwn(details, id) && object(details[id])) || {};
  const apcore = object(object(source.extensions)?.apcore);
  const structuredExamples = objects(skillDetails.examples).map(example);
  const withDefaults = (list: string[], defaults: string[]) => (list.length ? list : defaults);
  return {
    id,
    name: text(source.name) || id,
    description: text(source.description) ?? "",
    tags: strings(source.tags),
    inputModes: withDefaults(strings(source.inputModes), inputModes),
    outputModes: withDefaults(strings(source.outputModes), outputModes),
    examples: structuredExamples.length ? structuredExamples : strings(source.examples).map((message) => textExample(message)),
    annotations: object(skillDetails.annotations) ?? object(apcore?.annotations) ?? {},
    inputSchema: object(skillDetails.inputSchema),
    outputSchema: object(skillDetails.outputSchema),
    documentation: text(skillDetails.documentation),
  };
}

const example = (source: JsonObject, index: number): Example => ({
  title: text(source.title) || `Example ${index + 1}`,
  description: text(source.description),
  inputs: source.inputs,
  output: source.output,
});

const textExample = (message: string): Example => ({
  title: message.length > 60 ? `${message.slice(0, 59)}…` : message,
  text: message,
});

/** Whether the skill accepts files, according to its input modes or its schema. */
export function takesFiles(skill: Skill): boolean {
  const properties = object(skill.inputSchema?.properties) ?? {};
  const hasFileMode = skill.inputModes.some((mode) => !/^(application\/json|text\/plain)$/.test(mode));
  return hasFileMode || (Object.hasOwn(properties, "bytes") && isObject(properties.mimeType));
}

export const takesText = (skill: Skill) => skill.inputModes.some((mode) => mode.startsWith("text/"));

const BADGES: [string, string, "danger" | "warning" | "plain"][] = [
  ["destructive", "destructive", "danger"],
  ["requires_approval", "needs approval", "warning"],
  ["open_world", "open world", "plain"],
  ["readonly", "read-only", "plain"],
  ["idempotent", "idempotent", "plain"],
  ["streaming", "streaming", "plain"],
  ["cacheable", "cacheable", "plain"],
  ["paginated", "paginated", "plain"],
];

export const badgesOf = (skill: Skill) =>
  BADGES.filter(([name]) => skill.annotations[name] === true).map(([, label, tone]) => ({
    label,
    tone,
  }));
