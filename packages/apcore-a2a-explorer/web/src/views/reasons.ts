const MAX_REASONS = 3;

/** The different reasons of failures, as text; the first ones if there are many. */
export function differentReasons(failures: string[]): string {
  const reasons = [...new Set(failures)];
  return [...reasons.slice(0, MAX_REASONS), ...(reasons.length > MAX_REASONS ? ["…"] : [])].join("; ");
}
