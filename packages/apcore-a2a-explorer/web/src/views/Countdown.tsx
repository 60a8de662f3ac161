import { formatDuration, exactTime } from "./times";
import { useClock } from "./useClock";

const SOON = 600_000; // milliseconds
const VERY_SOON = 60_000; // milliseconds

/** The time left until *time*, updated each second. */
export function Countdown({ time }: { time: string }) {
  const end = Date.parse(time);
  const now = useClock(!Number.isNaN(end));
  if (Number.isNaN(end)) return null;
  const left = Math.ceil((end - now) / 1000) * 1000;
  const tone = left < VERY_SOON ? "danger" : left < SOON ? "warning" : "";
  return (
    <time class={`state number ${tone}`} dateTime={new Date(end).toISOString()} title={exactTime(new Date(end))}>
      {left > 0 ? `Expires in ${left < 60_000 ? `${left / 1000} s` : formatDuration(left)}` : "Expired"}
    </time>
  );
}
