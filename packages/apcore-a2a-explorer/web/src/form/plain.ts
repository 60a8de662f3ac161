import type { ComponentChildren } from "preact";

/** Stands for rjsf's Markdown: text stays text. */
export const Markdown = ({ children }: { children?: ComponentChildren }) => children;
