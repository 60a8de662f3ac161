export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
}

const MAX_CELLS = 1_000_000; // of the table of common subsequences

/** The lines that *after* has removed from *before* and added to it, with the lines in common. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [old, young] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < young.length && old[start] === young[start]) start++;
  let end = 0;
  const shorter = Math.min(old.length, young.length) - start;
  while (end < shorter && old.at(-1 - end) === young.at(-1 - end)) end++;
  return [
    ...signed(" ", old.slice(0, start)),
    ...changes(old.slice(start, old.length - end), young.slice(start, young.length - end)),
    ...signed(" ", old.slice(old.length - end)),
  ];
}

const signed = (sign: DiffLine["sign"], lines: string[]) => lines.map((text) => ({ sign, text }));

/** The changes by the longest common subsequence; for very long texts, all lines are replaced. */
function changes(old: string[], young: string[]): DiffLine[] {
  if (old.length * young.length > MAX_CELLS) return [...signed("-", old), ...signed("+", young)];
  const width = young.length + 1;
  // common[i * width + j]: length of the longest common subsequence of old[i…] and young[j…]
  const common = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = young.length - 1; j >= 0; j--) {
      const longest = Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
      common[i * width + j] = old[i] === young[j] ? common[(i + 1) * width + j + 1]! + 1 : longest;
    }
  }
  const lines: DiffLine[] = [];
  for (let i = 0, j = 0; i < old.length || j < young.length; ) {
    const isShared = i < old.length && old[i] === young[j];
    const removes = j >= young.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!;
    if (isShared) lines.push({ sign: " ", text: (j++, old[i++]!) });
    else if (i < old.length && removes) lines.push({ sign: "-", text: old[i++]! });
    else lines.push({ sign: "+", text: young[j++]! });
  }
  return lines;
}
