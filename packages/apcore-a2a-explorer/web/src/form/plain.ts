import type { ComponentChildren } from "preact";

/** Replaces rjsf's Markdown component: text stays text. */
export const Markdown = ({ children }: { children?: ComponentChildren }) => children;
