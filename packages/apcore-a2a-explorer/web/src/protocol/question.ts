import type { Json, JsonObject, Task } from "./types";
import { isObject, object, strings, text } from "./values";

/** The question or approval that a paused task waits for. */
export interface Question {
  kind: "approval" | "input" | "auth";
  text: string;
  id?: string;
  skill?: string;
  /** The arguments of the call to approve. */
  arguments?: JsonObject;
  /** Where the approval is decided; if by the server, any message is accepted as an answer. */
  decidedBy?: string;
  data?: Json;
  choices: string[];
  expiresAt?: string;
}

export function questionOf(task: Task): Question | null {
  const { state, message } = task.status;
  if (state !== "input-required" && state !== "auth-required") return null;
  const parts = message?.parts ?? [];
  const prompt = parts.flatMap((part) => part.text ?? []).join("\n");
  const data = parts.map((part) => part.data).filter(isObject);
  const approval = data.map((each) => object(each.approval)).find(Boolean);
  const input = data.map((each) => object(each.input)).find(Boolean);
  const details = approval ?? input;
  const extra = input ? input.data : data.find((each) => !each.approval);
  return {
    kind: state === "auth-required" ? "auth" : approval ? "approval" : "input",
    text: prompt || "The task is waiting for your answer.",
    id: text(details?.id),
    skill: text(details?.skill) ?? text(task.metadata?.skillId),
    arguments: object(approval?.arguments),
    decidedBy: text(approval?.decidedBy),
    data: extra,
    choices: words(input?.choices ?? (isObject(extra) ? extra.choices : [])),
    expiresAt: text(details?.expiresAt),
  };
}

/** The choices of a question that a text can answer. */
const words = (choices: unknown) =>
  strings(Array.isArray(choices) ? choices.map((each) => (isObject(each) ? each : String(each))) : []);

export const approvalAnswer = (question: Question, approved: boolean, comment: string) => ({
  approved,
  ...(question.id ? { approvalId: question.id } : {}),
  ...(comment ? { comment } : {}),
});
