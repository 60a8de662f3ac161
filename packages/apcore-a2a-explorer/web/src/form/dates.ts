interface DateInput {
  /** The type of the input element. */
  type: "date" | "time" | "datetime-local";
  /** The element's value for a string; null if the element cannot show it. */
  show: (value: string) => string | null;
  /** The string for the element's value; undefined if that value is empty. */
  read: (shown: string) => string | undefined;
}

/** The input for strings of a date or time format of JSON Schema (RFC 3339). */
export function dateInput(format: string): DateInput {
  if (format === "date-time") return { type: "datetime-local", show: localTime, read: withOffset };
  if (format === "time") {
    const show = (value: string) => /^(\d\d:\d\d(:\d\d)?)Z?$/i.exec(value)?.[1] ?? null;
    return { type: "time", show, read: (shown) => shown && `${withSeconds(shown)}Z` || undefined };
  }
  const show = (value: string) => (/^\d{4}-\d\d-\d\d$/.test(value) ? value : null);
  return { type: "date", show, read: (shown) => shown || undefined };
}

const withSeconds = (time: string) => (/:\d\d:/.test(time) ? time : `${time}:00`);

const pad = (number: number) => String(number).padStart(2, "0");

function localTime(value: string): string | null {
  const date = new Date(value);
  if (!/^\d{4}-\d\d-\d\d[Tt ]/.test(value) || Number.isNaN(date.getTime())) return null;
  const day = [date.getFullYear(), pad(date.getMonth() + 1), pad(date.getDate())].join("-");
  return `${day}T${[date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":")}`;
}

function withOffset(shown: string): string | undefined {
  const date = new Date(shown);
  if (!shown || Number.isNaN(date.getTime())) return undefined;
  const minutes = -date.getTimezoneOffset();
  const offset = `${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
  const [day, time = ""] = shown.split("T");
  return `${day}T${withSeconds(time)}${minutes ? `${minutes < 0 ? "-" : "+"}${offset}` : "Z"}`;
}
