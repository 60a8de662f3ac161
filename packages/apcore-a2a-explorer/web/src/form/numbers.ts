import { MAX_DIGITS } from "../protocol/json";
import type { Json } from "../protocol/types";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/**
 * The value of a typed number; undefined if nothing is typed. An integer that is not safe as a
 * double is a BigInt; any other number with more digits than a double holds is a string if the
 * schema allows strings. Text that is not a number, or is too large a number, stays text, so that
 * validation can report an error.
 */
export function numberOf(typed: string, mayBeString: boolean): Json | undefined {
  const source = typed.trim();
  if (!source) return undefined;
  const isInteger = /^[+-]?\d+$/.test(source);
  if (isInteger && source.length <= MAX_DIGITS && !Number.isSafeInteger(Number(source))) return BigInt(source);
  const number = Number(source);
  if (!NUMBER.test(source) || !Number.isFinite(number)) return source;
  return mayBeString && !isExact(source) ? source : number;
}

/** Whether a double holds all digits of a number. */
export const isExact = (source: string) => digitsOf(source) === digitsOf(String(Number(source)));

/** The digits and exponent of a number, normalized so that 1.50 and 15e-1 are equal. */
function digitsOf(source: string): string {
  const [mantissa = "", exponent = "0"] = source.toLowerCase().split("e");
  const [whole = "", fraction = ""] = mantissa.replace(/^[+-]/, "").split(".");
  const digits = `${whole}${fraction}`.replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  const power = Number(exponent) - fraction.length + (digits.length - significant.length);
  return significant ? `${mantissa.startsWith("-") ? "-" : ""}${significant}e${power}` : "0";
}
