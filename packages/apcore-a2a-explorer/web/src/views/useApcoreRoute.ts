import { useRef, useState } from "preact/hooks";
import { callApcoreRoute } from "../state/agent";
import { credentials } from "../state/credentials";
import { meansNoRoute } from "../state/access";
import { usePoll } from "./usePoll";

const INTERVAL = 4_000; // milliseconds

/** Poll a route below `/apcore/` while the page is visible; stop if the agent lacks or forbids the route. */
export function useApcoreRoute<T>(path: string, read: (response: unknown) => T, interval = INTERVAL) {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<unknown>(null);
  const latestPath = useRef(path);
  latestPath.current = path;
  const load = async () => {
    try {
      const response = read(await callApcoreRoute(path));
      if (latestPath.current !== path) return false;
      setData(response);
      setError(null);
      return true;
    } catch (failure) {
      if (latestPath.current !== path) return false;
      setError(failure);
      if (meansNoRoute(failure)) setData(null);
      return !meansNoRoute(failure);
    }
  };
  usePoll(load, interval, [path, credentials.value]);
  return { data, error, load };
}
