import { useEffect, useState } from "preact/hooks";

/** The current time, updated while *running* at an interval in milliseconds. */
export function useClock(running: boolean, interval = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [running, interval]);
  return now;
}
