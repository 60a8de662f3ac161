export function clockTime(time: number | string | undefined): string {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return "";
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()];
  const hms = parts.map((part) => String(part).padStart(2, "0")).join(":");
  return `${hms}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** Format a duration in one or two units, such as "340 ms", "4.0 s", "2 min 5 s" or "3 h 10 min". */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 999.5) return `${Math.max(0, Math.round(milliseconds))} ms`;
  if (milliseconds < 59_950) return `${(milliseconds / 1000).toFixed(1)} s`;
  const seconds = Math.round(milliseconds / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

const UNITS = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
] as const;
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** *time* relative to *now* (both in milliseconds), such as "2 minutes ago" or "in 5 minutes". */
export function relativeTime(time: number, now: number): string {
  const distance = time - now;
  for (const [unit, size] of UNITS) {
    if (Math.abs(distance) >= size) return RELATIVE.format(Math.trunc(distance / size), unit);
  }
  if (Math.abs(distance) < 10_000) return "just now";
  return RELATIVE.format(Math.trunc(distance / 1000), "second");
}

/** The date and time, with the time zone. */
export const exactTime = (date: Date) =>
  date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });

/** Shorten a long *id* to its end: ids begin with a time, so many share their first characters. */
export const shortId = (id: string) => (id.length > 13 ? `…${id.slice(-8)}` : id);

/** A remaining time of *milliseconds* in words, such as "58 min left". */
export function remainingTime(milliseconds: number): string {
  if (milliseconds <= 0) return "expired";
  const minutes = Math.floor(milliseconds / 60_000);
  if (minutes < 1) return "less than 1 min left";
  if (minutes < 120) return `${minutes} min left`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h left` : `${Math.floor(minutes / 1440)} days left`;
}
