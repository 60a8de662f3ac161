/** Desktop notifications of tasks that wait for input, once the user has allowed them. */

import { signal } from "@preact/signals";
import { skillOf } from "../protocol/taskFacts";
import { href } from "./route";
import { inbox } from "./tasks";

const KEY = "a2a-explorer.notify";

const isSupported = "Notification" in window;

function wasTurnedOn(): boolean {
  try {
    return isSupported && Notification.permission === "granted" && localStorage.getItem(KEY) === "yes";
  } catch {
    return false;
  }
}

/** Whether to notify; null if the browser can't, or the user has refused permission. */
export const notifying = signal<boolean | null>(isSupported && Notification.permission !== "denied" ? wasTurnedOn() : null);

/** Turn notifications on, after asking for permission, or off. */
export async function toggleNotifying(): Promise<void> {
  if (notifying.value) return storeChoice(false);
  const permission = await Notification.requestPermission();
  if (permission === "granted") storeChoice(true);
  if (permission === "denied") notifying.value = null;
}

function storeChoice(isOn: boolean): void {
  notifying.value = isOn;
  try {
    localStorage.setItem(KEY, isOn ? "yes" : "no");
  } catch {
    return; // storage is forbidden, so the choice lasts until the page is left
  }
}

let knownIds: Set<string> | null = null;

inbox.subscribe((tasks) => {
  if (!tasks) return;
  const newTasks = knownIds && tasks.filter((task) => !knownIds!.has(task.id));
  knownIds = new Set(tasks.map((task) => task.id));
  if (!newTasks?.length || !notifying.value || !document.hidden) return;
  const title = newTasks.length === 1 ? "A task waits for your input" : `${newTasks.length} tasks wait for your input`;
  try {
    const notification = new Notification(title, { body: newTasks.map(skillOf).join(", "), tag: "a2a-explorer.inbox" });
    notification.onclick = () => {
      focus();
      location.hash = href("inbox");
      notification.close();
    };
  } catch {
    notifying.value = null; // browsers on phones allow notifications only to service workers
  }
});
