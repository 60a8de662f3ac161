/** SVG path data on a grid of 24 by 24. */
const ICONS = {
  skills: "M4 5h6v6H4zM14 5h6v6h-6zM4 15h6v5H4zM14 15h6v5h-6z",
  tasks: "M4 6h2M10 6h10M4 12h2M10 12h10M4 18h2M10 18h10",
  inbox: "M4 13l3-8h10l3 8v6H4zM4 13h5l1 3h4l1-3h5",
  conversations: "M4 5h16v11H11l-4 4v-4H4z",
  requests: "M8 7l-4 5 4 5M16 7l4 5-4 5M13 5l-2 14",
  now: "M3 12h4l3-7 4 14 3-7h4",
  performance: "M4 20V10M10 20V4M16 20v-8M22 20H2",
  webhooks: "M12 4a4 4 0 0 1 3 6l3 5M9 10a4 4 0 0 1 3-6M9 10l-3 5a3 3 0 1 0 3 4h7a3 3 0 1 0 2-4",
  system: "M3 5h18v11H3zM8 20h8M12 16v4",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M5 19l1-1M18 6l1-1",
  dark: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  done: "M5 12l5 5L19 7",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  help: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 18v.5",
} as const;

export type IconName = keyof typeof ICONS;

export const Icon = ({ name }: { name: IconName }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={ICONS[name]} />
  </svg>
);
