import { PartView } from "../parts/PartView";
import { taskFacts } from "../protocol/taskFacts";
import type { Message, Part, Task } from "../protocol/types";
import { whoami } from "../state/access";

/** The author of a task's user messages: "User" if the task is another principal's, else "You". */
export function authorOf(task: Task): string {
  const { principal } = taskFacts(task);
  const ownPrincipal = whoami.value?.principal;
  return principal && ownPrincipal && principal !== ownPrincipal ? "User" : "You";
}

/** A message. Data that an agent sends beside text is collapsed, because it is meant for programs. */
export function MessageView({ message, author = "You" }: { message: Message; author?: string }) {
  return (
    <article class={`message ${message.role}`}>
      <h3>{message.role === "agent" ? "Agent" : author}</h3>
      <MessageParts message={message} />
    </article>
  );
}

export function MessageParts({ message: { role, parts } }: { message: Message }) {
  const collapsesData = role === "agent" && parts.some((part) => part.text !== undefined);
  return (
    <>
      {parts.map((part, index) =>
        collapsesData && part.data !== undefined ? (
          <CollapsedData key={index} part={part} />
        ) : (
          <PartView key={index} part={part} />
        ),
      )}
    </>
  );
}

const CollapsedData = ({ part }: { part: Part }) => (
  <details>
    <summary>Data</summary>
    <PartView part={part} />
  </details>
);
