/** Responses of the routes below `/apcore/`. These routes are not in A2A: only agents of apcore-a2a have them. */

import { readState } from "./states";
import type { Json, JsonObject, TaskState } from "./types";
import { isObject, object, objects, strings, text } from "./values";

const number = (value: unknown): number | undefined =>
  typeof value === "number" && Number.isFinite(value) ? value : undefined;
const count = (value: unknown): number => number(value) ?? 0;
const counts = (value: unknown): number[] => (Array.isArray(value) ? value.map(count) : []);

export interface WhoAmI {
  isAuthenticated: boolean;
  principal: string;
  roles: string[];
  isOperator: boolean;
  isApprover: boolean;
  expiresAt?: string;
}

export function readWhoAmI(source: unknown): WhoAmI {
  const response = object(source) ?? {};
  return {
    isAuthenticated: response.authenticated === true,
    principal: text(response.principal) ?? "",
    roles: strings(response.roles),
    isOperator: response.operator === true,
    isApprover: response.approver === true,
    expiresAt: text(response.expiresAt),
  };
}

/** A process that serves the agent. */
export interface Replica {
  id: string;
  host: string;
  pid?: number;
  version: string;
  startedAt?: string;
  lastSeenAt?: string;
  isDraining: boolean;
  leases: number;
  running: number;
  isSelf: boolean;
}

/** The current figures of the agent; an unknown figure is undefined or 0. */
export interface CurrentFigures {
  at?: string;
  status: string;
  /** What `tasks`, `oldestWorking` and `oldestWaiting` cover: `store` (all replicas), `workers` (all workers of one server) or `process` (one process). */
  scope: string;
  workers: number;
  tasks: { submitted?: number; working?: number; inputRequired?: number; authRequired?: number };
  lastHour: { completed?: number; failed?: number; canceled?: number; rejected?: number };
  /** Runs started in each minute of the last hour, oldest minute first. */
  started: number[];
  /** Runs failed in each minute of the last hour, oldest minute first. */
  failed: number[];
  /** Age of the oldest working task, in seconds. */
  oldestWorking?: number;
  /** Age of the oldest waiting task, in seconds. */
  oldestWaiting?: number;
  threads: { busy: number; limit: number; stuck: number };
  memory: { bytes?: number; limit?: number };
  webhooks?: { pending?: number; failed?: number };
  replicas: Replica[];
}

export function readCurrentFigures(source: unknown): CurrentFigures {
  const response = object(source) ?? {};
  const member = (name: string) => object(response[name]) ?? {};
  const { submitted, working, inputRequired, authRequired } = member("tasks");
  const { completed, failed, canceled, rejected } = member("lastHour");
  const { busy, limit, stuck } = member("threads");
  const webhooks = object(response.webhooks);
  return {
    at: text(response.at),
    status: text(response.status) ?? "",
    scope: text(response.scope) ?? "",
    workers: count(response.workers),
    tasks: {
      submitted: number(submitted),
      working: number(working),
      inputRequired: number(inputRequired),
      authRequired: number(authRequired),
    },
    lastHour: {
      completed: number(completed),
      failed: number(failed),
      canceled: number(canceled),
      rejected: number(rejected),
    },
    started: counts(member("perMinute").started),
    failed: counts(member("perMinute").failed),
    oldestWorking: number(member("oldest").workingSeconds),
    oldestWaiting: number(member("oldest").waitingSeconds),
    threads: { busy: count(busy), limit: count(limit), stuck: count(stuck) },
    memory: { bytes: number(member("memory").bytes), limit: number(member("memory").limit) },
    webhooks: webhooks && { pending: number(webhooks.pending), failed: number(webhooks.failed) },
    replicas: objects(response.replicas).map((replica) => ({
      id: text(replica.id) ?? "",
      host: text(replica.host) ?? "",
      pid: number(replica.pid),
      version: text(replica.version) ?? "",
      startedAt: text(replica.startedAt),
      lastSeenAt: text(replica.lastSeenAt),
      isDraining: replica.draining === true,
      leases: count(replica.leases),
      running: count(replica.running),
      isSelf: replica.self === true,
    })),
  };
}

export interface Leases {
  /** Whether several replicas may run tasks of the agent. */
  isShared: boolean;
  /** Maps task ids to the ids of the replicas that run the tasks. */
  holders: Map<string, string>;
}

export function readLeases(source: unknown): Leases {
  const response = object(source) ?? {};
  const leases = objects(response.leases).map((lease): [string, string] => [text(lease.taskId) ?? "", text(lease.replica) ?? ""]);
  return { isShared: response.shared === true, holders: new Map(leases) };
}

/** A slow or failed task of a skill. */
export interface NotableTask {
  taskId: string;
  at?: string;
  seconds?: number;
  state?: TaskState;
  code?: string;
}

export interface SkillFigures {
  id: string;
  running: number;
  runs: number;
  failed: number;
  errors: [code: string, count: number][];
  /** Percentiles of the runs' durations, in seconds. */
  p50?: number;
  p95?: number;
  p99?: number;
  perMinute: number[];
  failedPerMinute: number[];
  slowest: NotableTask[];
  failures: NotableTask[];
}

export interface Performance {
  /** What the figures cover: `workers` (all workers of one server) or `process` (one process). */
  scope: string;
  since?: string;
  skills: SkillFigures[];
}

export function readPerformance(source: unknown): Performance {
  const response = object(source) ?? {};
  return {
    scope: text(response.scope) ?? "",
    since: text(response.since),
    skills: objects(response.skills).map((skill) => ({
      id: text(skill.id) ?? "",
      running: count(skill.running),
      runs: count(skill.runs),
      failed: count(skill.failed),
      errors: Object.entries(object(skill.errors) ?? {}).map(([code, value]): [string, number] => [code, count(value)]),
      p50: number(skill.p50Seconds),
      p95: number(skill.p95Seconds),
      p99: number(skill.p99Seconds),
      perMinute: counts(skill.perMinute),
      failedPerMinute: counts(skill.failedPerMinute),
      slowest: objects(skill.slowest).map(notableTask),
      failures: objects(skill.failures).map(notableTask),
    })),
  };
}

const notableTask = (source: JsonObject): NotableTask => ({
  taskId: text(source.taskId) ?? "",
  at: text(source.at),
  seconds: number(source.seconds),
  state: source.state === undefined ? undefined : readState(source.state),
  code: text(source.code),
});

export interface Span {
  id: string;
  parentId?: string;
  name: string;
  kind: string;
  /** Milliseconds since 1970. */
  start: number;
  /** Undefined while the span runs. */
  seconds?: number;
  status: string;
  attributes: JsonObject;
  /** The number of the span's ancestors. */
  depth: number;
}

export interface Trace {
  traceId?: string;
  spans: Span[];
  /** The number of missing spans. */
  dropped: number;
}

/** Convert an RFC 3339 time to milliseconds since 1970. Keep the microseconds, which `Date.parse` drops. */
function milliseconds(time: string): number {
  const [, microseconds = ""] = /\.\d{3}(\d{1,3})/.exec(time) ?? [];
  return Date.parse(time) + Number(`0.${microseconds}`);
}

export function readTrace(source: unknown): Trace {
  const response = object(source) ?? {};
  const spans = objects(response.spans).flatMap((span): Span[] => {
    const start = milliseconds(text(span.startedAt) ?? "");
    if (Number.isNaN(start)) return [];
    return [
      {
        id: text(span.id) ?? "",
        parentId: text(span.parentId),
        name: text(span.name) ?? "",
        kind: text(span.kind) ?? "",
        start,
        seconds: number(span.seconds),
        status: text(span.status) ?? "",
        attributes: object(span.attributes) ?? {},
        depth: 0,
      },
    ];
  });
  return { traceId: text(response.traceId), spans: sortAsTree(spans), dropped: count(response.dropped) };
}

/** Sort spans: each after its parent, siblings by start. Set their depths. */
function sortAsTree(spans: Span[]): Span[] {
  const ids = new Set(spans.map((span) => span.id));
  const children = new Map<string, Span[]>();
  for (const span of spans) {
    const parentId = span.parentId !== undefined && span.parentId !== span.id && ids.has(span.parentId) ? span.parentId : "";
    children.set(parentId, [...(children.get(parentId) ?? []), span]);
  }
  const sorted = new Set<Span>();
  const add = (parentId: string, depth: number) => {
    for (const span of (children.get(parentId) ?? []).sort((a, b) => a.start - b.start)) {
      if (sorted.has(span)) continue;
      sorted.add(span);
      span.depth = depth;
      if (span.id) add(span.id, depth + 1);
    }
  };
  add("", 0);
  // spans that are each other's ancestors are below no root, so they are still missing
  return [...sorted, ...spans.filter((span) => !sorted.has(span))];
}

export interface Attempt {
  at?: string;
  status?: number;
  seconds?: number;
  result: string;
  reason: string;
}

export interface Webhook {
  taskId: string;
  id: string;
  url: string;
  state: string;
  reason: string;
  pending: number;
  nextAttemptAt?: string;
  attempts: Attempt[];
}

export const readAttempt = (source: Json | undefined): Attempt => {
  const attempt = isObject(source) ? source : {};
  return {
    at: text(attempt.at),
    status: number(attempt.status),
    seconds: number(attempt.seconds),
    result: text(attempt.result) ?? "",
    reason: text(attempt.reason) ?? "",
  };
};

export const readWebhooks = (source: unknown): Webhook[] =>
  objects(object(source)?.webhooks).map((webhook) => ({
    taskId: text(webhook.taskId) ?? "",
    id: text(webhook.id) ?? "",
    url: text(webhook.url) ?? "",
    state: text(webhook.state) ?? "",
    reason: text(webhook.reason) ?? "",
    pending: count(webhook.pending),
    nextAttemptAt: text(webhook.nextAttemptAt),
    attempts: objects(webhook.attempts).map(readAttempt),
  }));
