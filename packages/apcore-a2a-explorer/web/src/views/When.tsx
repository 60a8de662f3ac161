import { now } from "../state/clock";
import { relativeTime, exactTime } from "./times";

/** A time relative to now, with the exact time in the tooltip. */
export function When({ time }: { time: number | string | undefined }) {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return null;
  return (
    <time dateTime={date.toISOString()} title={exactTime(date)}>
      {relativeTime(date.getTime(), Math.max(now.value, Date.now()))}
    </time>
  );
}
