import type { Json, JsonObject, Task } from "./types";
import { isObject, object, strings, text } from "./values";

/** What a paused task asks. */
export interface Question {
  kind: "approval" | "input" | "auth";
  text: string;
  id?: string;
  skill?: string;
  /** What is to be approved. */
  arguments?: JsonObject;
  /** Whoever decides; an approval that the server decides takes any message. */
  decidedBy?: string;
  data?: Json;
  choices: string[];
  expiresAt?: string;
}

export function questionOf(task: Task): Question | null {
  const { state, message } = task.status;
  if (state !== "input-required" && state !== "auth-required") return null;
  const parts = message?.parts ?? [];
  const said = parts.flatMap((part) => part.text ?? []).join("\n");
  const data = parts.map((part) => part.data).filter(isObject);
  const approval = data.map((each) => object(each.approval)).find(Boolean);
  const input = data.map((each) => object(each.input)).find(Boolean);
  const about = approval ?? input;
  const more = input ? input.data : data.find((each) => !each.approval);
  return {
    kind: state === "auth-required" ? "auth" : approval ? "approval" : "input",
    text: said || "The task waits for an answer.",
    id: text(about?.id),
    skill: text(about?.skill) ?? text(task.metadata?.skillId),
    arguments: object(approval?.arguments),
    decidedBy: text(approval?.decidedBy),
    data: more,
    choices: isObject(more) ? strings(more.choices) : [],
    expiresAt: text(about?.expiresAt),
  };
}

export const approvalAnswer = (question: Question, approved: boolean, comment: string) => ({
  approved,
  ...(question.id ? { approvalId: question.id } : {}),
  ...(comment ? { comment } : {}),
});
