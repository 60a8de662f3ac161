import { PartView } from "../parts/PartView";
import type { Message, Part } from "../protocol/types";

/** A message. Data that an agent sends beside a text is meant for programs, and is collapsed. */
export function MessageView({ message }: { message: Message }) {
  const agent = message.role === "agent";
  const hasText = agent && message.parts.some((part) => part.text !== undefined);
  return (
    <article class={`message ${message.role}`}>
      <h3>{agent ? "Agent" : "You"}</h3>
      {message.parts.map((part, index) =>
        hasText && part.data !== undefined ? (
          <Folded key={index} part={part} />
        ) : (
          <PartView key={index} part={part} />
        ),
      )}
    </article>
  );
}

const Folded = ({ part }: { part: Part }) => (
  <details>
    <summary>Data</summary>
    <PartView part={part} />
  </details>
);
