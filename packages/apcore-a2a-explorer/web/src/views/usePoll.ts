import { useEffect } from "preact/hooks";

/** Call *load* now, and every *interval* milliseconds while the page is visible. */
export function usePoll(load: () => Promise<unknown>, interval: number, dependencies: unknown[] = []): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const poll = async () => {
      clearTimeout(timer);
      if (document.hidden || isOver) return;
      await load();
      clearTimeout(timer);
      if (!isOver) timer = setTimeout(() => void poll(), interval);
    };
    const resume = () => void poll();
    document.addEventListener("visibilitychange", resume);
    void poll();
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", resume);
    };
  }, dependencies);
}
