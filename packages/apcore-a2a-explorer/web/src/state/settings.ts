import { effect, signal } from "@preact/signals";
import type { Dialect } from "../protocol/dialect";
import type { SendMode, Version } from "../protocol/types";
import { v03 } from "../protocol/v03";
import { v1 } from "../protocol/v1";

export type Theme = "system" | "light" | "dark";

const THEME = "a2a-explorer.theme";
const VERSION = "a2a-explorer.version";
const MODE = "a2a-explorer.mode";
const MODES: SendMode[] = ["stream", "send", "later"];

/** Read a setting; null if it is not stored, or storage is forbidden. */
function loadSetting(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function saveSetting(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    return;
  }
}

const storedTheme = loadSetting(THEME);
export const theme = signal<Theme>(storedTheme === "light" || storedTheme === "dark" ? storedTheme : "system");
export const version = signal<Version>(loadSetting(VERSION) === "0.3" ? "0.3" : "1.0");

/** The mode for running skills; null until the user chooses one. */
export const chosenMode = signal<SendMode | null>(MODES.find((mode) => mode === loadSetting(MODE)) ?? null);

export const DIALECTS: Record<Version, Dialect> = { "1.0": v1, "0.3": v03 };
export const dialect = (): Dialect => DIALECTS[version.value];

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  saveSetting(THEME, theme.value);
});
effect(() => saveSetting(VERSION, version.value));
effect(() => {
  if (chosenMode.value) saveSetting(MODE, chosenMode.value);
});
