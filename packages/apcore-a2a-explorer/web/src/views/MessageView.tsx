import { PartView } from "../parts/PartView";
import type { Message, Part } from "../protocol/types";

/** What was said. Data that the agent put beside a text is for programs, and comes folded up. */
export function MessageView({ message }: { message: Message }) {
  const agent = message.role === "agent";
  const told = agent && message.parts.some((part) => part.text !== undefined);
  return (
    <article class={`message ${message.role}`}>
      <h3>{agent ? "Agent" : "You"}</h3>
      {message.parts.map((part, index) =>
        told && part.data !== undefined ? (
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
