/** *count* with its noun, in the singular for one: "1 part", "2 parts". */
export const counted = (count: number, noun: string) =>
  `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;
