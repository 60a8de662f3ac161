const PARALLEL = 4; // requests at a time

/** Do *work* for each item, a few at a time. */
export async function inParallel<T>(items: T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const pending = [...items];
  const worker = async () => {
    for (let item = pending.shift(); item !== undefined; item = pending.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}
