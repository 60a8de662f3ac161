/** The signed-in user, according to the agent, or else to the token. */

import { computed } from "@preact/signals";
import { isObject, strings, text } from "../protocol/values";
import { credentials } from "./credentials";
import { whoami } from "./access";

export interface Identity {
  name: string;
  roles: string[];
  /** Milliseconds since 1970. */
  expiresAt?: number;
}

export const identity = computed((): Identity | null => {
  const reported = whoami.value;
  if (reported?.isAuthenticated) {
    const roles = [...reported.roles];
    if (reported.isOperator && !roles.includes("operator")) roles.push("operator");
    if (reported.isApprover && !roles.includes("approver")) roles.push("approver");
    return { name: nameOf(reported.principal), roles, expiresAt: Date.parse(reported.expiresAt ?? "") || undefined };
  }
  return credentials.value && readToken(credentials.value.value);
});

/** The last part of a principal, such as `ada` of `jwt|https://idp.example.com|ada`. */
const nameOf = (principal: string) => principal.split("|").at(-1)!;

/** Read the claims of a JWT without verifying them; null for other credentials. */
export function readToken(secret: string): Identity | null {
  const payload = /^Bearer [\w-]+\.([\w-]+)\.[\w-]*$/.exec(secret)?.[1];
  if (!payload) return null;
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
    const claims: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (!isObject(claims)) return null;
    return {
      name: text(claims.name) ?? text(claims.preferred_username) ?? text(claims.sub) ?? "",
      roles: strings(claims.roles),
      expiresAt: typeof claims.exp === "number" ? claims.exp * 1000 : undefined,
    };
  } catch {
    return null;
  }
}
