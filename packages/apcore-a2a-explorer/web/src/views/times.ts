export function clock(time: number | string | undefined): string {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return "";
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()];
  const hms = parts.map((part) => String(part).padStart(2, "0")).join(":");
  return `${hms}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function moment(time: string | undefined): string {
  const date = new Date(time ?? NaN);
  return Number.isNaN(date.getTime())
    ? ""
    : date.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

export const short = (id: string) => (id.length > 13 ? `${id.slice(0, 8)}…` : id);
