import { useRef, useState } from "preact/hooks";
import { callApcoreRoute } from "../state/agent";
import { credentials } from "../state/credentials";
import { meansNoRoute } from "../state/operate";
import { usePoll } from "./usePoll";

const INTERVAL = 4_000; // milliseconds

/** The response of a route below `/apcore/`, polled while the page is visible, if the agent has the route. */
export function useApcoreRoute<T>(path: string, read: (answer: unknown) => T, interval = INTERVAL) {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<unknown>(null);
  const latest = useRef(path);
  latest.current = path;
  const load = async () => {
    try {
      const answer = read(await callApcoreRoute(path));
      if (latest.current !== path) return false;
      setData(answer);
      setError(null);
      return true;
    } catch (failure) {
      setError(failure);
      if (meansNoRoute(failure)) setData(null);
      return !meansNoRoute(failure);
    }
  };
  usePoll(load, interval, [path, credentials.value]);
  return { data, error, load };
}
