import { signal } from "@preact/signals";
import type { SecurityScheme } from "../protocol/card";
import { agentUrl } from "./proxied";

export interface Credentials {
  scheme: string;
  /** The place of the secret in requests. */
  location: "header" | "query";
  /** The name of the header or query parameter. */
  name: string;
  /** The value of the header or query parameter, with the secret. */
  value: string;
}

// a proxy may later serve another agent at the same port, but with another path
const KEY = `a2a-explorer.credentials${agentUrl && ` ${location.pathname}`}`;
const HEADER_NAME = /^[A-Za-z0-9_.-]+$/;

function loadCredentials(): Credentials | null {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Credentials | null;
  } catch {
    return null;
  }
}

export const credentials = signal<Credentials | null>(loadCredentials());
/** The reason to show the sign-in dialog; null while it is closed. */
export const signingIn = signal<{ reason: string } | null>(null);

export function signIn(entered: Credentials | null): void {
  credentials.value = entered;
  try {
    if (entered) sessionStorage.setItem(KEY, JSON.stringify(entered));
    else sessionStorage.removeItem(KEY);
  } catch {
    return;
  }
}

/** The reason why the page cannot use a scheme; undefined if it can. */
export function whyUnusable(scheme: SecurityScheme): string | undefined {
  if (scheme.kind === "other") {
    return "This page can't send these credentials. For mutual TLS, install a client certificate in your browser.";
  }
  if (scheme.kind !== "apiKey") return undefined;
  if (!HEADER_NAME.test(scheme.keyName)) {
    return "The Agent Card declares an invalid header or parameter name. Ask the agent's operator to correct it.";
  }
  if (scheme.location === "cookie") {
    return "This page can't set cookies. Sign in on the agent's site, then reload this page.";
  }
  return undefined;
}

export function credentialsOf(scheme: SecurityScheme, secret: string): Credentials {
  if (scheme.kind === "apiKey") {
    const location = scheme.location === "query" ? "query" : "header";
    return { scheme: scheme.name, location, name: scheme.keyName, value: secret };
  }
  const secretWithoutScheme = secret.replace(/^(bearer|basic)\s+/i, "");
  const value = scheme.kind === "basic" ? `Basic ${base64(secretWithoutScheme)}` : `Bearer ${secretWithoutScheme}`;
  return { scheme: scheme.name, location: "header", name: "Authorization", value };
}

/** Whether a request can carry the secret. Header fields take Latin-1, but no ASCII control characters except tabs. */
export const isSendable = ({ location, value }: Credentials) =>
  location === "query" || /^[\t\x20-\x7e\x80-\xff]*$/.test(value);

const base64 = (source: string) =>
  btoa(Array.from(new TextEncoder().encode(source), (byte) => String.fromCharCode(byte)).join(""));
