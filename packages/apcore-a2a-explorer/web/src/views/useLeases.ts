import { useRef, useState } from "preact/hooks";
import { readLeases, type Leases } from "../protocol/apcoreRoutes";
import { isSettled } from "../protocol/states";
import type { Task } from "../protocol/types";
import { callApcoreRoute } from "../state/agent";
import { credentials } from "../state/credentials";
import { meansNoRoute, apcoreViews } from "../state/access";
import { usePoll } from "./usePoll";

const INTERVAL = 4_000; // milliseconds
const MAX_TASKS = 200; // in one request

/** The replicas that run *tasks*, by task id; undefined if unknown, or if replicas cannot share the store. */
export function useLeases(tasks: Task[]): Map<string, string> | undefined {
  const [leases, setLeases] = useState<Leases | null>(null);
  const unsettledTasks = tasks.filter((task) => !isSettled(task.status.state)).slice(0, MAX_TASKS);
  const ids = unsettledTasks.map((task) => encodeURIComponent(task.id)).join(",");
  const latestIds = useRef(ids);
  latestIds.current = ids;
  const isOperator = apcoreViews.value.has("now");
  const load = async () => {
    if (!isOperator || leases?.isShared === false) return false;
    try {
      const response = readLeases(await callApcoreRoute(`leases?tasks=${ids}`));
      if (latestIds.current !== ids) return false;
      setLeases(response);
      return response.isShared;
    } catch (error) {
      if (latestIds.current !== ids) return false;
      setLeases(null);
      return !meansNoRoute(error);
    }
  };
  usePoll(load, INTERVAL, [ids, isOperator, credentials.value]);
  return leases?.isShared ? leases.holders : undefined;
}
