import { PartView } from "../parts/PartView";
import type { Message, Part } from "../protocol/types";

/** A message. Data that an agent sends beside a text is meant for programs, and is collapsed. */
export function MessageView({ message }: { message: Message }) {
  return (
    <article class={`message ${message.role}`}>
      <h3>{message.role === "agent" ? "Agent" : "You"}</h3>
      <MessageParts message={message} />
    </article>
  );
}

export function MessageParts({ message: { role, parts } }: { message: Message }) {
  const hasText = role === "agent" && parts.some((part) => part.text !== undefined);
  return (
    <>
      {parts.map((part, index) =>
        hasText && part.data !== undefined ? (
          <Folded key={index} part={part} />
        ) : (
          <PartView key={index} part={part} />
        ),
      )}
    </>
  );
}

const Folded = ({ part }: { part: Part }) => (
  <details>
    <summary>Data</summary>
    <PartView part={part} />
  </details>
);
