export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
}

const MAX_CELLS = 1_000_000; // of the table of common subsequences

/** The lines removed from *before*, those added in *after*, and the lines in common. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [oldLines, newLines] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < oldLines.length && start < newLines.length && oldLines[start] === newLines[start]) start++;
  let end = 0;
  const shorter = Math.min(oldLines.length, newLines.length) - start;
  while (end < shorter && oldLines.at(-1 - end) === newLines.at(-1 - end)) end++;
  return [
    ...withSign(" ", oldLines.slice(0, start)),
    ...changes(oldLines.slice(start, oldLines.length - end), newLines.slice(start, newLines.length - end)),
    ...withSign(" ", oldLines.slice(oldLines.length - end)),
  ];
}

const withSign = (sign: DiffLine["sign"], lines: string[]) => lines.map((text) => ({ sign, text }));

/** The changes by the longest common subsequence; for very long texts, all lines are replaced. */
function changes(oldLines: string[], newLines: string[]): DiffLine[] {
  if (oldLines.length * newLines.length > MAX_CELLS) return [...withSign("-", oldLines), ...withSign("+", newLines)];
  const width = newLines.length + 1;
  // common[i * width + j]: length of the longest common subsequence of oldLines[i…] and newLines[j…]
  const common = new Uint16Array((oldLines.length + 1) * width);
  for (let i = oldLines.length - 1; i >= 0; i--) {
    for (let j = newLines.length - 1; j >= 0; j--) {
      const longest = Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
      common[i * width + j] = oldLines[i] === newLines[j] ? common[(i + 1) * width + j + 1]! + 1 : longest;
    }
  }
  const lines: DiffLine[] = [];
  for (let i = 0, j = 0; i < oldLines.length || j < newLines.length; ) {
    const isShared = i < oldLines.length && oldLines[i] === newLines[j];
    const removes = j >= newLines.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!;
    if (isShared) lines.push({ sign: " ", text: (j++, oldLines[i++]!) });
    else if (i < oldLines.length && removes) lines.push({ sign: "-", text: oldLines[i++]! });
    else lines.push({ sign: "+", text: newLines[j++]! });
  }
  return lines;
}
