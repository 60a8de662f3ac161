import { signal } from "@preact/signals";
import type { SecurityScheme } from "../protocol/card";

export interface Credentials {
  scheme: string;
  /** Where the secret goes. */
  location: "header" | "query";
  name: string;
  value: string;
}

const KEY = "a2a-explorer.credentials";
const NAME = /^[A-Za-z0-9_.-]+$/;

function recall(): Credentials | null {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Credentials | null;
  } catch {
    return null;
  }
}

export const credentials = signal<Credentials | null>(recall());
/** Whether the sign-in is shown, and why. */
export const signingIn = signal<{ reason: string } | null>(null);

export function signIn(found: Credentials | null): void {
  credentials.value = found;
  try {
    if (found) sessionStorage.setItem(KEY, JSON.stringify(found));
    else sessionStorage.removeItem(KEY);
  } catch {
    return;
  }
}

/** Why the page can't use a scheme; undefined if it can. */
export function unusable(scheme: SecurityScheme): string | undefined {
  if (scheme.kind === "other") return "This page has no way to present it.";
  if (scheme.kind !== "apiKey") return undefined;
  if (!NAME.test(scheme.key)) return "The card names a header that can't be one.";
  if (scheme.location === "cookie") return "Pages may not set this cookie; the agent has to.";
  return undefined;
}

export function credentialsOf(scheme: SecurityScheme, secret: string): Credentials {
  if (scheme.kind === "apiKey") {
    const location = scheme.location === "query" ? "query" : "header";
    return { scheme: scheme.name, location, name: scheme.key, value: secret };
  }
  const bare = secret.replace(/^(bearer|basic)\s+/i, "");
  const value = scheme.kind === "basic" ? `Basic ${base64(bare)}` : `Bearer ${bare}`;
  return { scheme: scheme.name, location: "header", name: "Authorization", value };
}

/** Header fields take no other characters than Latin-1 has, and none of them that control. */
export const sendable = ({ location, value }: Credentials) =>
  location === "query" || /^[\t\x20-\x7e\x80-\xff]*$/.test(value);

const base64 = (source: string) =>
  btoa(Array.from(new TextEncoder().encode(source), (byte) => String.fromCharCode(byte)).join(""));
