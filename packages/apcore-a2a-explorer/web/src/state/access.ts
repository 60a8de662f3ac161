/** The caller's identity according to the agent, and the views that the caller may open: each shows a route below `/apcore/`. */

import { signal } from "@preact/signals";
import { HttpError } from "../protocol/errors";
import { readWhoAmI, type WhoAmI } from "../protocol/apcoreRoutes";
import { callApcoreRoute, card } from "./agent";
import { credentials } from "./credentials";

export type ApcoreView = "now" | "performance" | "webhooks";

const ROUTES: Record<ApcoreView, string> = { now: "now", performance: "skills", webhooks: "webhooks?state=failed&limit=1" };

/** The caller's identity; null if the agent does not report it. */
export const whoami = signal<WhoAmI | null>(null);

/** The views whose routes the agent has, and lets the caller use. */
export const apcoreViews = signal(new Set<ApcoreView>());

/** Whether a request failed because the agent lacks the route, or does not let the caller use the route. */
export const meansNoRoute = (error: unknown) => error instanceof HttpError && [401, 403, 404, 405].includes(error.status);

/** Ask the agent who the caller is, and which views the caller may use. */
export async function loadAccess(): Promise<void> {
  const usedCredentials = credentials.value;
  // asking without credentials would open the sign-in dialog
  if (!card.value || (!usedCredentials && card.value.schemes.length)) return forget();
  try {
    const answer = readWhoAmI(await callApcoreRoute("whoami"));
    const views = await Promise.all((Object.keys(ROUTES) as ApcoreView[]).map(checkView));
    if (credentials.value !== usedCredentials) return;
    whoami.value = answer;
    apcoreViews.value = new Set(views.flatMap((view) => view ?? []));
  } catch {
    if (credentials.value === usedCredentials) forget();
  }
}

async function checkView(view: ApcoreView): Promise<ApcoreView | undefined> {
  try {
    await callApcoreRoute(ROUTES[view]);
    return view;
  } catch (error) {
    return meansNoRoute(error) ? undefined : view;
  }
}

function forget(): void {
  whoami.value = null;
  apcoreViews.value = new Set();
}
