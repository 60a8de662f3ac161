import { signal } from "@preact/signals";
import type { Exchange } from "../protocol/rpc";
import type { ListQuery, Task, TaskPage } from "../protocol/types";
import { perform } from "./agent";
import { dialect } from "./settings";

export const listTasks = async (query: ListQuery, exchange?: Exchange): Promise<TaskPage> =>
  dialect().page(await perform({ name: "list", query }, exchange));

export const getTask = async (id: string): Promise<Task> =>
  dialect().task(await perform({ name: "get", id }));

/**
 * The paused tasks; null until they are loaded. Tasks that wait for input come first, then tasks that
 * wait for authentication; each group is newest first.
 */
export const inbox = signal<Task[] | null>(null);
/** Whether more tasks are paused than the inbox holds. */
export const inboxHasMore = signal(false);
export const inboxError = signal<unknown>(null);

let latestLoad = 0;

export async function loadInbox(): Promise<void> {
  const load = ++latestLoad;
  try {
    const pages = await Promise.all([
      listTasks({ state: "input-required", pageSize: 50 }),
      listTasks({ state: "auth-required", pageSize: 50 }),
    ]);
    if (load !== latestLoad) return;
    inbox.value = pages.flatMap((page) => page.tasks);
    inboxHasMore.value = pages.some((page) => page.next);
    inboxError.value = null;
  } catch (error) {
    if (load === latestLoad) inboxError.value = error;
  }
}
