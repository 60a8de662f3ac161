import { now } from "../state/clock";
import { ago, exact } from "./times";

/** A time relative to now, with the exact one in the tooltip. */
export function When({ time }: { time: number | string | undefined }) {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return null;
  return (
    <time dateTime={date.toISOString()} title={exact(date)}>
      {ago(date.getTime(), Math.max(now.value, Date.now()))}
    </time>
  );
}
