import { signal } from "@preact/signals";

const INTERVAL = 10_000; // milliseconds

/** The current time in milliseconds, for relative times. */
export const now = signal(Date.now());

setInterval(() => (now.value = Date.now()), INTERVAL);
