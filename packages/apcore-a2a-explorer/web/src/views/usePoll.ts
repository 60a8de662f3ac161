import { useEffect } from "preact/hooks";

/**
 * Call *load* now, and every *interval* milliseconds while the page is visible, until *load* returns
 * false. Begin again when a dependency changes.
 */
export function usePoll(load: () => Promise<unknown>, interval: number, dependencies: unknown[] = []): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const poll = async () => {
      clearTimeout(timer);
      if (document.hidden || isOver) return;
      if ((await load()) === false) return stop();
      clearTimeout(timer);
      if (!isOver) timer = setTimeout(resume, interval);
    };
    const resume = () => void poll();
    const stop = () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", resume);
    };
    document.addEventListener("visibilitychange", resume);
    resume();
    return stop;
  }, [interval, ...dependencies]);
}
