import type { TaskState } from "../protocol/types";

export function Badges({ badges }: { badges: { label: string; tone: string }[] }) {
  if (!badges.length) return null;
  return (
    <span class="badges">
      {badges.map(({ label, tone }) => (
        <span key={label} class={`badge ${tone}`}>
          {label}
        </span>
      ))}
    </span>
  );
}

const TONES: Partial<Record<TaskState, string>> = {
  completed: "good",
  failed: "danger",
  rejected: "danger",
  "input-required": "warning",
  "auth-required": "warning",
  working: "busy",
  submitted: "busy",
};

export const StateBadge = ({ state }: { state: TaskState }) => (
  <span class={`state ${TONES[state] ?? "plain"}`}>{state}</span>
);
