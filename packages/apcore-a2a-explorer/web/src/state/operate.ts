/** Which of the agent's own routes the caller may use, and who the caller is to the agent. */

import { signal } from "@preact/signals";
import { HttpError } from "../protocol/errors";
import { readWhoAmI, type WhoAmI } from "../protocol/own";
import { askOwn, card } from "./agent";
import { credentials } from "./credentials";

export type OwnView = "now" | "performance" | "webhooks";

const ROUTES: Record<OwnView, string> = { now: "now", performance: "skills", webhooks: "webhooks?state=failed&limit=1" };

/** Who the caller is; null if the agent does not tell. */
export const whoami = signal<WhoAmI | null>(null);

/** The views whose routes the agent has, and lets the caller use. */
export const ownViews = signal(new Set<OwnView>());

/** Whether the agent has no such route, or refuses it to this caller. */
export const isHidden = (error: unknown) => error instanceof HttpError && [401, 403, 404, 405].includes(error.status);

/** Ask who the caller is, and which views it may use. */
export async function discover(): Promise<void> {
  const asked = credentials.value;
  // asking without credentials would open the sign-in dialog
  if (!card.value || (!asked && card.value.schemes.length)) return forget();
  try {
    const answer = readWhoAmI(await askOwn("whoami"));
    const views = await Promise.all((Object.keys(ROUTES) as OwnView[]).map(available));
    if (credentials.value !== asked) return;
    whoami.value = answer;
    ownViews.value = new Set(views.flatMap((view) => view ?? []));
  } catch {
    if (credentials.value === asked) forget();
  }
}

async function available(view: OwnView): Promise<OwnView | undefined> {
  try {
    await askOwn(ROUTES[view]);
    return view;
  } catch (error) {
    return isHidden(error) ? undefined : view;
  }
}

function forget(): void {
  whoami.value = null;
  ownViews.value = new Set();
}
