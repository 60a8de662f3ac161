import type { Json, JsonObject, Task } from "./types";
import { isObject, object, strings, text, withoutUndefined } from "./values";

/** The question of a paused task: a request for approval, input or authentication. */
export interface Question {
  kind: "approval" | "input" | "auth";
  text: string;
  id?: string;
  skill?: string;
  /** The arguments of the call to approve. */
  arguments?: JsonObject;
  /** Who decides the approval: `client` or `server`. For `server`, a message of any content resumes the task. */
  decidedBy?: string;
  data?: Json;
  choices: string[];
  /** The schema of the answer, if the question has one. */
  schema?: JsonObject;
  expiresAt?: string;
}

export function questionOf(task: Task): Question | null {
  const { state, message } = task.status;
  if (state !== "input-required" && state !== "auth-required") return null;
  const parts = message?.parts ?? [];
  const prompt = parts.flatMap((part) => part.text ?? []).join("\n");
  const data = parts.map((part) => part.data).filter(isObject);
  const approval = data.map((content) => object(content.approval)).find(Boolean);
  const input = data.map((content) => object(content.input)).find(Boolean);
  const details = approval ?? input;
  const extra = input ? input.data : data.find((content) => !content.approval);
  const { schema, rest } = schemaIn(input, extra);
  const choices = textChoices(input?.choices ?? (isObject(extra) ? extra.choices : []));
  return {
    kind: state === "auth-required" ? "auth" : approval ? "approval" : "input",
    text: approval && REPLACED_BY_BUTTONS.test(prompt) ? "" : withoutChoices(prompt, choices) || "The task is waiting for your answer.",
    id: text(details?.id),
    skill: text(details?.skill) ?? text(task.metadata?.skillId),
    arguments: object(approval?.arguments),
    decidedBy: text(approval?.decidedBy),
    data: rest,
    choices,
    schema,
    expiresAt: text(details?.expiresAt),
  };
}

/** Texts of this project's server that the buttons and the table of arguments replace. */
const REPLACED_BY_BUTTONS = /^(Approval required for module |Please answer yes or no, or \{)/;

/** A question without the lines that list its choices. */
const withoutChoices = (prompt: string, choices: string[]) =>
  prompt
    .split("\n")
    .filter((line) => !choices.includes(line.replace(/^(\d+\.|-) /, "")))
    .join("\n");

/**
 * The schema of the object that answers a question, and the rest of the question's data. A schema
 * of a single value becomes the schema of an object with one member, which has the name of the
 * question's field, or `answer`.
 */
function schemaIn(input: JsonObject | undefined, extra: Json | undefined): { schema?: JsonObject; rest?: Json } {
  const schemaInData = isObject(extra) ? object(extra.schema) : undefined;
  const schema = object(input?.schema) ?? schemaInData;
  if (!schema) return { rest: extra };
  const { schema: _, ...others } = isObject(extra) ? extra : {};
  const rest = schemaInData ? (Object.keys(others).length ? others : undefined) : extra;
  const field = text(input?.field);
  if (!field && (schema.properties || schema.$ref || schema.type === "object")) return { schema, rest };
  const name = field ?? "answer";
  const { $defs, definitions, ...valueSchema } = schema;
  return {
    schema: withoutUndefined({ type: "object", properties: { [name]: valueSchema }, required: [name], $defs, definitions }),
    rest,
  };
}

/** The choices of a question as texts. Objects are left out, because no text can name them. */
const textChoices = (choices: unknown) =>
  strings(Array.isArray(choices) ? choices.map((choice) => (isObject(choice) ? choice : String(choice))) : []);

export const approvalAnswer = (question: Question, approved: boolean, comment: string) => ({
  approved,
  ...(question.id ? { approvalId: question.id } : {}),
  ...(comment ? { comment } : {}),
});
