/** Who is signed in: as the agent tells it, else as the token says. */

import { computed } from "@preact/signals";
import { isObject, strings, text } from "../protocol/values";
import { credentials } from "./credentials";
import { whoami } from "./operate";

export interface Identity {
  name: string;
  roles: string[];
  /** Milliseconds since 1970. */
  expiresAt?: number;
}

export const identity = computed((): Identity | null => {
  const told = whoami.value;
  if (told?.isAuthenticated) {
    const roles = [...told.roles];
    if (told.isOperator && !roles.includes("operator")) roles.push("operator");
    if (told.isApprover && !roles.includes("approver")) roles.push("approver");
    return { name: nameOf(told.principal), roles, expiresAt: Date.parse(told.expiresAt ?? "") || undefined };
  }
  return credentials.value && readToken(credentials.value.value);
});

/** The last part of a principal, such as `ada` of `jwt|https://idp.example.com|ada`. */
const nameOf = (principal: string) => principal.split("|").at(-1)!;

/** The claims of a JWT, which the agent alone can verify; null for other credentials. */
export function readToken(secret: string): Identity | null {
  const payload = /^Bearer [\w-]+\.([\w-]+)\.[\w-]*$/.exec(secret)?.[1];
  if (!payload) return null;
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
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
