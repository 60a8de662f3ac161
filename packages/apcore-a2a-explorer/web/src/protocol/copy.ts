/** Copies of requests, as curl commands, Python, JavaScript or JSON. They do not contain the credentials for the agent. */

import { jsonRpc, type Binding } from "./binding";
import type { Dialect } from "./dialect";
import { hasLargeIntegers, parseJson, toJson } from "./json";
import type { Json, Operation, Part } from "./types";
import { isObject } from "./values";

export interface Target {
  /** The URL of the interface. */
  url: string;
  /** The URL of the agent, if it differs from `url`. */
  agentUrl?: string;
  /** The binding of the interface; JSON-RPC by default. */
  binding?: Binding;
  /** The name of the query parameter for the credentials. */
  queryKey?: string;
  /** The header for the credentials; `value` has the variable `$A2A_TOKEN` in place of the secret. */
  credentials?: { header: string; value: string };
  lastEventId?: string;
}

const quote = (source: string) => `'${source.replaceAll("'", `'\\''`)}'`;

/** The source of *text* in a template literal of JavaScript. */
const inTemplate = (text: string) => text.replace(/[\\`]|\$(?=\{)/g, "\\$&");

const CONTENT_TYPE = ["Content-Type", "application/json"] as const;

/** The HTTP request for an operation, with an indented body. */
function requestOf(dialect: Dialect, operation: Operation, { url, binding = jsonRpc() }: Target) {
  const { verb, path, body } = binding.request(dialect, operation, 1);
  return { verb, url: path ? url.replace(/\/$/, "") + path : url, body: body && toJson(parseJson(body), 2) };
}

/** The body of a request; the method and the URL if there is no body. */
export function asJson(dialect: Dialect, operation: Operation, target: Target): string {
  const { verb, url, body } = requestOf(dialect, operation, target);
  return body || `${verb} ${url}`;
}

export function asCurl(dialect: Dialect, operation: Operation, target: Target): string {
  const isStream = operation.name === "stream" || operation.name === "subscribe";
  const { verb, url, body } = requestOf(dialect, operation, target);
  const headers = [...(body ? [CONTENT_TYPE] : []), ...Object.entries(dialect.headers)];
  if (target.lastEventId !== undefined) headers.push(["Last-Event-ID", target.lastEventId]);
  const method = verb === (body ? "POST" : "GET") ? "" : `-X ${verb} `;
  const lines = [
    `curl -s${isStream ? "N" : ""} ${method}${quote(url)}${queryOf(target, url)}`,
    ...headers.map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(target.credentials ? [`-H ${secretHeaderOf(target.credentials)}`] : []),
    ...(body ? [`-d ${quote(body)}`] : []),
  ];
  return lines.join(" \\\n  ");
}

/** A header with the variable in double quotes for the shell to expand; other special characters of the name are quoted. */
const secretHeaderOf = ({ header, value }: { header: string; value: string }) =>
  /^[\w-]+$/.test(header) ? `"${header}: ${value}"` : `${quote(`${header}: `)}"${value}"`;

/** The query after the quoted URL, with a variable in double quotes for the shell to expand. */
const queryOf = ({ queryKey }: Target, url: string) =>
  queryKey ? `${quote(`${url.includes("?") ? "&" : "?"}${encodeURIComponent(queryKey)}=`)}"$A2A_TOKEN"` : "";

export function asPython(dialect: Dialect, operation: Operation, target: Target): string {
  const { imports, lines } = pythonOf(operation, target);
  const auth = pythonAuth(target);
  const names = ["SyncA2AClient", ...imports, ...(auth.includes("APIKey") ? ["APIKey"] : [])].sort();
  const source = [
    ...(auth ? ["import os"] : []),
    ...(lines.some((line) => line.includes("raw=Path(")) ? ["from pathlib import Path"] : []),
    "",
    `from apcore_a2a_client import ${names.join(", ")}`,
    "",
    `with SyncA2AClient(${python(target.agentUrl ?? target.url)}, protocol="${dialect.version}"${auth}) as client:`,
    ...lines.map((line) => line && `    ${line}`),
  ];
  return source.join("\n").trimStart();
}

/** A module for Node.js and other runtimes with fetch. */
export function asJavaScript(dialect: Dialect, operation: Operation, target: Target): string {
  const { credentials, queryKey, lastEventId } = target;
  const { verb, url } = requestOf(dialect, operation, target);
  const isJsonRpc = url === target.url; // HTTP+JSON adds a path
  const token = "${process.env.A2A_TOKEN}";
  const address = queryKey
    ? `\`${inTemplate(url)}${url.includes("?") ? "&" : "?"}${encodeURIComponent(queryKey)}=\${encodeURIComponent(process.env.A2A_TOKEN)}\``
    : JSON.stringify(url);
  const { body, readsFiles } = javaScriptBody(dialect, operation, target);
  const headers = [...(body ? [CONTENT_TYPE] : []), ...Object.entries(dialect.headers)];
  if (lastEventId !== undefined) headers.push(["Last-Event-ID", lastEventId]);
  const lines = headers.map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (credentials) {
    lines.push(`${JSON.stringify(credentials.header)}: \`${credentials.value.replace("$A2A_TOKEN", () => token)}\`,`);
  }
  const isStream = operation.name === "stream" || operation.name === "subscribe";
  return [
    ...(readsFiles ? ['import { readFile } from "node:fs/promises";', ""] : []),
    `const response = await fetch(${address}, {`,
    `  method: "${verb}",`,
    "  headers: {",
    ...lines.map((line) => `    ${line}`),
    "  },",
    ...(body ? [`  body: ${body.replaceAll("\n", "\n  ")},`] : []),
    "});",
    ...(isStream ? READ_STREAM : isJsonRpc ? READ_RESULT : READ_BODY),
  ].join("\n");
}

const READ_RESULT = [
  "const { result, error } = await response.json();",
  "if (error) throw new Error(`${error.message} (${error.code})`);",
  "console.log(JSON.stringify(result, null, 2));",
];

const READ_BODY = [
  "const body = await response.text();",
  "if (!response.ok) throw new Error(body);",
  "console.log(body);",
];

const READ_STREAM = [
  'if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {',
  "  throw new Error(await response.text()); // an error response is JSON, not a stream",
  "}",
  'let pending = "";',
  "for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {",
  "  const lines = (pending + piece).split(/\\r?\\n/);",
  "  pending = lines.pop();",
  "  for (const line of lines) {",
  '    if (line.startsWith("data:")) console.log(line.slice(5).trim());',
  "  }",
  "}",
];

/** JavaScript for the body: an expression that reads the files, or, if the body has large integers, a string. */
function javaScriptBody(dialect: Dialect, operation: Operation, target: Target): { body: string; readsFiles: boolean } {
  const source = requestOf(dialect, operation, target).body;
  if (!source) return { body: "", readsFiles: false };
  // JavaScript would round large integers
  if (hasLargeIntegers(source)) return { body: JSON.stringify(source), readsFiles: false };
  const names = new Map<string, string>();
  const withMarkers = (part: Part): Part => {
    if (part.raw === undefined) return part;
    const marker = `file ${names.size} of the copied request`;
    names.set(marker, part.filename || "file");
    return { ...part, raw: marker };
  };
  const markedOperation =
    "message" in operation
      ? { ...operation, message: { ...operation.message, parts: operation.message.parts.map(withMarkers) } }
      : operation;
  let body = `JSON.stringify(${requestOf(dialect, markedOperation, target).body})`;
  for (const [marker, name] of names) {
    body = body.replace(`"${marker}"`, () => `await readFile(${JSON.stringify(name)}, "base64")`);
  }
  return { body, readsFiles: names.size > 0 };
}

function pythonAuth({ credentials, queryKey }: Target): string {
  if (!credentials && !queryKey) return "";
  return credentials?.header === "Authorization"
    ? `, auth=f"${credentials.value.replace("$A2A_TOKEN", "{os.environ['A2A_TOKEN']}")}"`
    : ', auth=APIKey(os.environ["A2A_TOKEN"])';
}

function pythonOf(operation: Operation, target: Target): { imports: string[]; lines: string[] } {
  switch (operation.name) {
    case "send":
    case "stream":
      return pythonSend(operation);
    case "get":
      return withoutImports(`task = client.get_task(${python(operation.id)})`, "print(task.status.state)");
    case "cancel":
      return withoutImports(`task = client.cancel_task(${python(operation.id)})`, "print(task.status.state)");
    case "subscribe": {
      const last = target.lastEventId ? `, last_event_id=${python(target.lastEventId)}` : "";
      const subscription = `client.subscribe(${python(operation.id)}${last})`;
      return withoutImports(`for event in ${subscription}:`, "    print(event)");
    }
    case "list": {
      const { contextId, state, pageSize, changedAfter } = operation.query;
      const filters = { context_id: contextId, state, page_size: pageSize };
      return withoutImports(
        ...(changedAfter ? ["# the client can't filter by time of change"] : []),
        `page = client.list_tasks(${keywords(filters)})`, "for task in page.tasks:", "    print(task.id, task.status.state)");
    }
    case "setPush": {
      const { url, token, id } = operation.config;
      const fields = keywords({ url, token: token || undefined, id: id || undefined, task_id: operation.taskId });
      return {
        imports: ["PushNotificationConfig"],
        lines: [`client.set_push_config(PushNotificationConfig(${fields}))`],
      };
    }
    case "listPush":
      return withoutImports(`print(client.list_push_configs(${python(operation.taskId)}))`);
    case "deletePush":
      return withoutImports(
        `client.delete_push_config(${python(operation.taskId)}, ${python(operation.id)})`,
      );
    case "extendedCard":
      return withoutImports("card = client.extended_card()", "print([skill.id for skill in card.skills])");
  }
}

const withoutImports = (...lines: string[]) => ({ imports: [], lines });

function pythonSend(operation: Extract<Operation, { name: "send" | "stream" }>) {
  const { message, metadata, options } = operation;
  const { skillId, ...more } = metadata ?? {};
  const push = options?.push;
  const config = push && `PushNotificationConfig(${keywords({ url: push.url, token: push.token || undefined })})`;
  const parts = message.parts.map(pythonPart);
  const content = parts.length === 1 && !parts[0]!.startsWith("Part(") ? parts[0]! : `[${parts.join(", ")}]`;
  const callArguments = [
    content,
    keywords({
      skill: skillId,
      context_id: message.contextId,
      task_id: message.taskId,
      metadata: Object.keys(more).length ? more : undefined,
      blocking: operation.name === "send" && options?.returnImmediately ? false : undefined,
    }),
    operation.name === "send" && config ? `push_config=${config}` : "",
  ].filter(Boolean);
  const argumentLines = ["(", ...callArguments.map((argument) => `    ${indent(argument)},`), ")"];
  const lines =
    operation.name === "stream"
      ? [
          ...(push ? ["# the client can't add a webhook to a stream; use set_push_config"] : []),
          `for event in client.stream_message${argumentLines[0]}`, ...argumentLines.slice(1, -1), "):", "    print(event)"]
      : [`task = client.send_message${argumentLines[0]}`, ...argumentLines.slice(1), "print(task.status.state, task.value)"];
  const imports = [
    ...(parts.some((part) => part.startsWith("Part(")) ? ["Part"] : []),
    ...(operation.name === "send" && config ? ["PushNotificationConfig"] : []),
  ];
  return { imports, lines: lines.flatMap((line) => line.split("\n")) };
}

const indent = (source: string) => source.replaceAll("\n", "\n    ");

function pythonPart(part: Part): string {
  const { text, data, filename, mediaType } = part;
  const details = keywords({ filename, media_type: mediaType });
  if (!details && text !== undefined) return python(text);
  if (!details && isObject(data)) return python(data);
  return `Part(${[pythonContent(part), details].filter(Boolean).join(", ")})`;
}

function pythonContent({ text, data, raw, url, filename }: Part): string {
  if (text !== undefined) return `text=${python(text)}`;
  if (raw !== undefined) return `raw=Path(${python(filename || "file")}).read_bytes()`;
  return url !== undefined ? `url=${python(url)}` : `data=${python(data ?? null)}`;
}

const keywords = (source: Record<string, Json | undefined>) =>
  Object.entries(source)
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => `${name}=${python(value as Json)}`)
    .join(", ");

/** *value* as a Python literal; JSON strings are valid Python literals. */
export function python(value: Json, depth = 0): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return toJson(value);
  const items = Array.isArray(value)
    ? value.map((item) => python(item, depth + 1))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${python(item, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length < 80 && !line.includes("\n")) return line;
  const pad = "    ".repeat(depth + 1);
  return `${open}\n${items.map((item) => `${pad}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}
