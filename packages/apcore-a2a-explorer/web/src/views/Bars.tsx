const HEIGHT = 32; // SVG user units

interface Props {
  /** The number of runs in each minute, oldest minute first. */
  counts: number[];
  /** The number of failed runs in each minute. */
  failed: number[];
  label: string;
}

/** A bar chart of the runs in each minute, with the failed runs in another colour. */
export function Bars({ counts, failed, label }: Props) {
  const highest = Math.max(1, ...counts, ...failed);
  const total = counts.reduce((sum, count) => sum + count, 0);
  const failedTotal = failed.reduce((sum, count) => sum + count, 0);
  return (
    <svg
      class="bars"
      viewBox={`0 0 ${Math.max(1, counts.length)} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${label}: ${total} in ${counts.length} minutes, ${failedTotal} failed; at most ${Math.max(0, ...counts)} a minute`}
    >
      <path class="all" d={pathOf(counts, highest)} />
      <path class="bad" d={pathOf(failed, highest)} />
    </svg>
  );
}

/** One SVG path for all bars, not one for each bar, because a page may have hundreds of charts. */
const pathOf = (counts: number[], highest: number) =>
  counts
    .map((count, index) => (count > 0 ? `M${index + 0.1} ${HEIGHT}v${-Math.max(2, (count / highest) * HEIGHT).toFixed(1)}h.8V${HEIGHT}z` : ""))
    .join("");
