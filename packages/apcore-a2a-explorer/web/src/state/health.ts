import { signal } from "@preact/signals";
import { isObject, text } from "../protocol/values";
import { base } from "./agent";

export interface Health {
  tone: "good" | "warning" | "danger";
  label: string;
}

/** The state of the agent's server; null if it is not known. */
export const health = signal<Health | null>(null);

export async function loadHealth(): Promise<void> {
  try {
    const response = await fetch(new URL("health", base), { signal: AbortSignal.timeout(10_000) });
    health.value = healthOf(await response.json().catch(() => null));
  } catch {
    health.value = { tone: "danger", label: "Not reachable" };
  }
}

/** Read a response to `GET /health`; null for agents of other projects. */
export function healthOf(source: unknown): Health | null {
  if (!isObject(source)) return null;
  if (source.status === "healthy") return { tone: "good", label: "Healthy" };
  if (source.status === "draining") return { tone: "warning", label: "Shutting down" };
  if (source.status !== "unhealthy") return null;
  return { tone: "danger", label: text(source.reason) || "Unhealthy" };
}
