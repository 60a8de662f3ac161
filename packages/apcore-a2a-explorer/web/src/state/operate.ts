/** The caller's identity, as the agent sees it, and the agent's own routes that the caller may use. */

import { signal } from "@preact/signals";
import { HttpError } from "../protocol/errors";
import { readWhoAmI, type WhoAmI } from "../protocol/own";
import { callOwnRoute, card } from "./agent";
import { credentials } from "./credentials";

export type OwnView = "now" | "performance" | "webhooks";

const ROUTES: Record<OwnView, string> = { now: "now", performance: "skills", webhooks: "webhooks?state=failed&limit=1" };

/** The caller's identity; null if the agent does not report it. */
export const whoami = signal<WhoAmI | null>(null);

/** The views whose routes the agent has, and lets the caller use. */
export const ownViews = signal(new Set<OwnView>());

/** Whether *error* means that the agent has no such route, or refuses it to this caller. */
export const isHidden = (error: unknown) => error instanceof HttpError && [401, 403, 404, 405].includes(error.status);

/** Ask the agent who the caller is, and which views the caller may use. */
export async function discover(): Promise<void> {
  const usedCredentials = credentials.value;
  // asking without credentials would open the sign-in dialog
  if (!card.value || (!usedCredentials && card.value.schemes.length)) return forget();
  try {
    const answer = readWhoAmI(await callOwnRoute("whoami"));
    const views = await Promise.all((Object.keys(ROUTES) as OwnView[]).map(checkView));
    if (credentials.value !== usedCredentials) return;
    whoami.value = answer;
    ownViews.value = new Set(views.flatMap((view) => view ?? []));
  } catch {
    if (credentials.value === usedCredentials) forget();
  }
}

async function checkView(view: OwnView): Promise<OwnView | undefined> {
  try {
    await callOwnRoute(ROUTES[view]);
    return view;
  } catch (error) {
    return isHidden(error) ? undefined : view;
  }
}

function forget(): void {
  whoami.value = null;
  ownViews.value = new Set();
}
