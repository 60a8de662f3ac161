const PARALLEL = 4; // requests at a time

/** Do *work* for each item, a few at a time. */
export async function inParallel<T>(items: T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const rest = [...items];
  const worker = async () => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}
