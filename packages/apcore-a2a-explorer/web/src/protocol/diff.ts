export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
}

const MAX_CELLS = 1_000_000; // of the table of common subsequences

/** All lines of both texts in order: removed from *before*, added in *after*, or common. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [oldLines, newLines] = [before.split("\n"), after.split("\n")];
  const minLength = Math.min(oldLines.length, newLines.length);
  let startCount = 0;
  while (startCount < minLength && oldLines[startCount] === newLines[startCount]) startCount++;
  const maxEndCount = minLength - startCount;
  let endCount = 0;
  while (endCount < maxEndCount && oldLines.at(-1 - endCount) === newLines.at(-1 - endCount)) endCount++;
  const oldEnd = oldLines.length - endCount;
  const newEnd = newLines.length - endCount;
  return [
    ...withSign(" ", oldLines.slice(0, startCount)),
    ...changes(oldLines.slice(startCount, oldEnd), newLines.slice(startCount, newEnd)),
    ...withSign(" ", oldLines.slice(oldEnd)),
  ];
}

const withSign = (sign: DiffLine["sign"], lines: string[]) => lines.map((text) => ({ sign, text }));

/** The lines with their signs, by the longest common subsequence. If there are very many lines, none counts as common. */
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
    const isCommon = i < oldLines.length && oldLines[i] === newLines[j];
    const isRemoved = j >= newLines.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!;
    if (isCommon) lines.push({ sign: " ", text: (j++, oldLines[i++]!) });
    else if (i < oldLines.length && isRemoved) lines.push({ sign: "-", text: oldLines[i++]! });
    else lines.push({ sign: "+", text: newLines[j++]! });
  }
  return lines;
}
