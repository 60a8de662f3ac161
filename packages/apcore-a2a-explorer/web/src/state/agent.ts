import { batch, computed, signal } from "@preact/signals";
import { bindingOf, jsonRpc } from "../protocol/binding";
import { interfaceOf, readCard, unsupportedReason, type AgentCard } from "../protocol/card";
import type { Target } from "../protocol/copy";
import type { Dialect } from "../protocol/dialect";
import { ConnectionError, describe, HttpError } from "../protocol/errors";
import { parseJson } from "../protocol/json";
import { call, stream, type Endpoint, type Exchange } from "../protocol/rpc";
import type { Operation, Version } from "../protocol/types";
import { isObject, text } from "../protocol/values";
import { credentials, signingIn } from "./credentials";
import { logRequest, type LogRecorder } from "./log";
import { agentUrl } from "./proxied";
import { dialect, version } from "./settings";

const meta = document.querySelector<HTMLMetaElement>('meta[name="agent-base"]');
/** The URL of the agent, or of its proxy. Requests go to it, because the CSP may block the URL in the card. */
export const base = new URL(meta?.content || "./", location.href.split("#")[0]).href;

export const card = signal<AgentCard | null>(null);
export const cardError = signal("");
/** Whether `card` is the extended card. */
export const isExtended = signal(false);
export const skillsById = computed(() => new Map(card.value?.skills.map((skill) => [skill.id, skill])));

/** Whether a skill is destructive, according to the card. */
export const isDestructive = (skillId: string) => skillsById.value.get(skillId)?.annotations.destructive === true;

/** The schema of a skill's results, if the card has it. */
export const outputSchemaOf = (skillId: string | undefined) =>
  skillsById.value.get(skillId ?? "")?.outputSchema;

export async function loadCard(): Promise<void> {
  const recorder = newRecorder(null, dialect());
  try {
    const source = await fetchCard(recorder);
    if (!isObject(source)) throw new Error("The Agent Card is not a JSON object. Check the agent's server.");
    recorder.end();
    await showCard(readCard(source));
  } catch (error) {
    recorder.end(error);
    openSignInOn401(error);
    cardError.value =
      error instanceof TypeError ? "The agent can't be reached. Check that it is running." : describe(error);
  }
}

async function fetchCard(recorder: LogRecorder): Promise<unknown> {
  const headers = secretHeaders();
  recorder.request(headers, "");
  const response = await fetch(withSecret(new URL(".well-known/agent-card.json", base)), { headers });
  recorder.response(response.status, response.headers);
  if (!response.ok) throw new HttpError(response.status, await refusalReason(response));
  const source = await response.text();
  recorder.piece(source);
  try {
    return parseJson(source);
  } catch {
    return null;
  }
}

/** The reason why the card is not shown: the message of the proxy, or the HTTP status text. */
async function refusalReason(response: Response): Promise<string> {
  const body: unknown = agentUrl ? await response.json().catch(() => null) : null;
  const message = isObject(body) && isObject(body.error) ? text(body.error.message) : undefined;
  return message || response.statusText || "no Agent Card";
}

/** Switch to the other version if the agent has interfaces only for that version. */
function adaptVersion(agentCard: AgentCard): void {
  const otherVersion = version.value === "1.0" ? "0.3" : "1.0";
  if (!interfaceOf(agentCard, version.value) && interfaceOf(agentCard, otherVersion)) version.value = otherVersion;
}

/**
 * Show the extended card if the user has signed in and the card can be loaded, else the public card.
 * The public card is not shown while the extended card loads, so that skills do not come and go.
 */
async function showCard(publicCard: AgentCard): Promise<void> {
  adaptVersion(publicCard);
  const hasExtended = credentials.value && publicCard.capabilities.extendedCard;
  const source = hasExtended ? await extendedCard() : undefined;
  batch(() => {
    card.value = isObject(source) ? readCard(source) : publicCard;
    isExtended.value = isObject(source);
    cardError.value = "";
  });
}

/** The extended card, or undefined if it cannot be loaded; `perform` opens the sign-in dialog on a 401. */
const extendedCard = () => perform({ name: "extendedCard" }).catch(() => undefined);

/** Header field for the proxy: the URL of the interface to forward the request to. */
const INTERFACE_HEADER = "X-Agent-Interface";

/**
 * The endpoint for a version: the agent's JSON-RPC endpoint, or, if a proxy serves this page, an
 * interface in the card. Throws an Error if the card has no interface for the version.
 */
function endpoint(chosenDialect: Dialect): Endpoint {
  const common = {
    url: (path: string) => withSecret(new URL(`.${path}`, base)),
    dialect: chosenDialect,
    headers: { ...chosenDialect.headers, ...secretHeaders() },
  };
  if (!agentUrl || !card.value) return { ...common, binding: jsonRpc(), proxyHeaders: {} };
  const chosenInterface = interfaceOf(card.value, chosenDialect.version);
  if (!chosenInterface) throw new Error(unsupportedReason(card.value, chosenDialect.version));
  return { ...common, binding: bindingOf(chosenInterface), proxyHeaders: { [INTERFACE_HEADER]: new URL(chosenInterface.url, agentUrl).href } };
}

/** The target of copied requests in a version, without the secret. */
export function target(forVersion: Version, lastEventId?: string): Target {
  const secret = credentials.value;
  const header = secret?.location === "header" ? secret.name : "";
  const prefix = /^(Bearer|Basic) /.exec(secret?.value ?? "")?.[0] ?? "";
  const chosenInterface = agentUrl && card.value ? interfaceOf(card.value, forVersion) : undefined;
  return {
    url: chosenInterface?.url ?? (agentUrl || base),
    agentUrl: agentUrl || base,
    binding: chosenInterface ? bindingOf(chosenInterface) : jsonRpc(),
    lastEventId,
    queryKey: secret?.location === "query" ? secret.name : undefined,
    credentials: header ? { header, value: `${prefix}$A2A_TOKEN` } : undefined,
  };
}

function secretHeaders(): Record<string, string> {
  const secret = credentials.value;
  return secret?.location === "header" ? { [secret.name]: secret.value } : {};
}

function withSecret(url: URL): string {
  const secret = credentials.value;
  if (secret?.location === "query") url.searchParams.set(secret.name, secret.value);
  return url.href;
}

const ignore = () => {};
const NULL_RECORDER: LogRecorder = { request: ignore, response: ignore, piece: ignore, end: ignore };

function newRecorder(operation: Operation | null, { version }: Dialect, lastEventId?: string): LogRecorder {
  return logRequest(operation, version, lastEventId, Object.keys(secretHeaders())[0]);
}

/** Send a request; return the result in the format of JSON-RPC. */
export async function perform(
  operation: Operation,
  exchange?: Exchange,
  chosenDialect = dialect(),
): Promise<unknown> {
  const recorder = exchange?.isUnlogged ? NULL_RECORDER : newRecorder(operation, chosenDialect);
  try {
    const result = await call(endpoint(chosenDialect), operation, { ...exchange, recorder });
    recorder.end();
    return result;
  } catch (error) {
    recorder.end(error);
    openSignInOn401(error);
    throw error;
  }
}

/** Request a route below `/apcore/`, and return the JSON response. Only agents of this project have these routes. */
export async function callApcoreRoute(path: string, method: "GET" | "POST" = "GET"): Promise<unknown> {
  const url = withSecret(new URL(`apcore/${path}`, base));
  try {
    const response = await fetch(url, { method, headers: secretHeaders() }).catch(() => {
      throw new ConnectionError("The agent can't be reached. Try again.");
    });
    const answer: unknown = await response.json().catch(() => null);
    if (response.ok) return answer;
    const error = isObject(answer) && isObject(answer.error) ? answer.error : {};
    throw new HttpError(response.status, text(error.message) || response.statusText || "no reason given");
  } catch (error) {
    openSignInOn401(error);
    throw error;
  }
}

/** Send a request; yield the results of its stream. */
export async function* listen(
  operation: Operation,
  exchange: Exchange,
  onOpen: () => void,
  chosenDialect = dialect(),
) {
  const recorder = newRecorder(operation, chosenDialect, exchange.lastEventId);
  const options = { ...exchange, recorder };
  try {
    yield* stream(endpoint(chosenDialect), operation, options, onOpen);
    recorder.end();
  } catch (error) {
    recorder.end(error);
    openSignInOn401(error);
    throw error;
  }
}

function openSignInOn401(error: unknown): void {
  if (!(error instanceof HttpError) || error.status !== 401) return;
  signingIn.value = {
    reason: credentials.value
      ? "The agent rejected these credentials. Check them and try again."
      : "The agent requires authentication.",
  };
}
