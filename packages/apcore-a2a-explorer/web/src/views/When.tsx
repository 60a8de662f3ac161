import { ago, exact } from "./times";
import { useClock } from "./useClock";

/** A time relative to now, with the exact one in the tooltip. */
export function When({ time }: { time: number | string | undefined }) {
  const now = useClock(true, CLOCK_INTERVAL);
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return null;
  return (
    <time dateTime={date.toISOString()} title={exact(date)}>
      {ago(date.getTime(), now)}
    </time>
  );
}

const CLOCK_INTERVAL = 10_000; // milliseconds
