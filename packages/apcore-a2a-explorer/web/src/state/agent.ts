import { batch, computed, signal } from "@preact/signals";
import { readCard, type AgentCard } from "../protocol/card";
import type { Target } from "../protocol/copy";
import type { Dialect } from "../protocol/dialect";
import { describe, HttpError } from "../protocol/errors";
import { call, stream, type Endpoint, type Exchange } from "../protocol/rpc";
import type { Operation } from "../protocol/types";
import { isObject } from "../protocol/values";
import { credentials, signingIn } from "./credentials";
import { logged } from "./log";
import { dialect } from "./settings";

const meta = document.querySelector<HTMLMetaElement>('meta[name="agent-base"]');
/** The agent's address. What the card says may be another one, which the CSP would not allow. */
export const base = new URL(meta?.content || "./", location.href.split("#")[0]).href;

export const card = signal<AgentCard | null>(null);
export const cardError = signal("");
export const extended = signal(false);
export const skillsById = computed(() => new Map(card.value?.skills.map((each) => [each.id, each])));

export async function loadCard(): Promise<void> {
  try {
    const response = await fetch(address(new URL(".well-known/agent-card.json", base)), {
      headers: secretHeaders(),
    });
    if (!response.ok) throw new HttpError(response.status, response.statusText || "no card");
    const source: unknown = await response.json().catch(() => null);
    if (!isObject(source)) throw new Error("What is there is no JSON object.");
    await show(readCard(source));
  } catch (error) {
    refused(error);
    cardError.value =
      error instanceof TypeError ? "The agent can't be reached." : describe(error);
  }
}

/** The extended card is shown at once, not after the other: nobody shall see skills go and come. */
async function show(found: AgentCard): Promise<void> {
  const more = credentials.value && found.capabilities.extendedCard;
  const source = more ? await extendedCard() : undefined;
  batch(() => {
    card.value = isObject(source) ? readCard(source) : found;
    extended.value = isObject(source);
    cardError.value = "";
  });
  document.title = `${card.value!.name} · A2A explorer`;
}

/** Who may not see it sees the other; a refusal of the credentials is told by the sign-in. */
const extendedCard = () => ask({ name: "extendedCard" }).catch(() => undefined);

function endpoint(speaks: Dialect): Endpoint {
  return { url: address(new URL(base)), headers: { ...speaks.headers, ...secretHeaders() } };
}

/** What copied requests are sent to, without the secret. */
export function target(lastEventId?: string): Target {
  const secret = credentials.value;
  const header = secret?.location === "header" ? secret.name : "";
  const prefix = /^(Bearer|Basic) /.exec(secret?.value ?? "")?.[0] ?? "";
  return {
    url: base,
    lastEventId,
    queryKey: secret?.location === "query" ? secret.name : undefined,
    credentials: header ? { header, value: `${prefix}$A2A_TOKEN` } : undefined,
  };
}

function secretHeaders(): Record<string, string> {
  const secret = credentials.value;
  return secret?.location === "header" ? { [secret.name]: secret.value } : {};
}

function address(url: URL): string {
  const secret = credentials.value;
  if (secret?.location === "query") url.searchParams.set(secret.name, secret.value);
  return url.href;
}

/** One request, and the result of its answer, as it is. */
export async function ask(
  operation: Operation,
  exchange?: Exchange,
  speaks = dialect(),
): Promise<unknown> {
  const entry = logged(operation, speaks.version);
  try {
    const result = await call(endpoint(speaks), speaks.request(operation), exchange);
    entry.ended();
    return result;
  } catch (error) {
    entry.ended(error);
    refused(error);
    throw error;
  }
}

/** A stream of results. */
export async function* listen(
  operation: Operation,
  exchange: Exchange,
  opened: () => void,
  speaks = dialect(),
) {
  const entry = logged(operation, speaks.version, exchange.lastEventId);
  try {
    yield* stream(endpoint(speaks), speaks.request(operation), exchange, opened);
    entry.ended();
  } catch (error) {
    entry.ended(error);
    refused(error);
    throw error;
  }
}

function refused(error: unknown): void {
  if (!(error instanceof HttpError) || error.status !== 401) return;
  signingIn.value = {
    reason: credentials.value
      ? "The agent did not accept these credentials."
      : "The agent wants to know who you are.",
  };
}
