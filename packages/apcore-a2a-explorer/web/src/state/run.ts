import { signal } from "@preact/signals";
import { ConnectionError, HttpError, RpcError } from "../protocol/errors";
import { fold } from "../protocol/fold";
import { progressOf, type Progress } from "../protocol/progress";
import { isPaused, isSettled, isTerminal } from "../protocol/states";
import { object, text } from "../protocol/values";
import type { JsonObject, Message, Operation, StreamEvent, Task } from "../protocol/types";
import { perform, listen } from "./agent";
import { randomHex } from "./random";
import { dialect } from "./settings";
import { loadInbox } from "./tasks";

export interface TimedEvent {
  id?: string;
  /** Time in milliseconds; undefined for past events whose time is unknown. */
  at: number | undefined;
  event: StreamEvent;
  /** The result in which the agent sent the event, in the format of JSON-RPC. */
  wire: unknown;
}

/** A "lost" connection is retried automatically; a "given up" one is not. */
export type Connection = "idle" | "connecting" | "open" | "lost" | "given up" | "ended";

// milliseconds; the first four retries come within 3 s, after which apcore-a2a cancels a task without clients
const RETRY_DELAYS = [250, 500, 750, 1000, 2000, 4000, 8000, 16000];
const RENDER_INTERVAL = 80; // milliseconds
const TASK_NOT_FOUND = -32001;
const REPLAY_TIME = 700; // milliseconds after the start of a replay; until then, events without a time count as past events

/**
 * A message that was sent, or a task that is watched. The members are not signals, because there may
 * be thousands of events. Instead, `changed` makes views render again, at most once per
 * RENDER_INTERVAL.
 */
export class Run {
  task: Task | null = null;
  /** The message that the agent sent instead of a task. */
  agentMessage: Message | null = null;
  events: TimedEvent[] = [];
  progress: Progress | null = null;
  connection: Connection = "idle";
  error: unknown = null;
  /** Whether the agent no longer knows the task, although the task had not ended. */
  isTaskLost = false;
  lastEventId: string | undefined;
  startedAt = Date.now();
  endedAt: number | undefined;
  /** Whether the stream begins with past events. */
  replays = false;
  /** Whether the user's answer came too late: the task no longer waited for it. */
  isLate = false;
  /** Whether only the ids and the status of the task are known. */
  isPartial = false;
  readonly changed = signal(0);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();
  /** Number of the current call of `watch`; earlier calls stop. */
  #currentWatch = 0;
  #watchedSince = 0;
  /** The dialect in which the run was sent and is watched, even if the user chooses another version. */
  #dialect = dialect();
  /** The operation that started the run; `operation` is the latest one. */
  sent: Operation;
  /** Trace id of the run's requests (W3C Trace Context). */
  traceId = randomHex(16);

  constructor(
    readonly skillId: string | undefined,
    public operation: Operation,
  ) {
    this.sent = operation;
  }

  get isActive(): boolean {
    return this.connection === "connecting" || this.connection === "open";
  }

  /** Send without a stream, blocking or not. */
  async send(): Promise<void> {
    this.#setConnection("connecting");
    try {
      const exchange = { signal: this.#abort.signal, traceId: this.traceId };
      const result = await perform(this.operation, exchange, this.#dialect);
      this.addEvent({ at: Date.now(), event: this.#dialect.event(result), wire: result });
      this.#end();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Send or subscribe, and read the events; reconnect if the connection breaks. */
  async watch(): Promise<void> {
    const watchNumber = ++this.#currentWatch;
    this.#watchedSince = Date.now();
    for (let attempt = 0; ; attempt++) {
      const countBefore = this.events.length;
      try {
        await this.#read();
        if (!this.task || isSettled(this.task.status.state)) return this.#end();
        throw new ConnectionError("The stream ended before the task did.");
      } catch (error) {
        if (watchNumber !== this.#currentWatch) return;
        const mayBeUnsent = this.operation.name === "stream" && this.connection !== "open";
        if (!isTemporary(error) || !this.task || mayBeUnsent) return this.#fail(error);
        if (this.events.length > countBefore) attempt = 0;
        this.error = error;
        const wait = RETRY_DELAYS[attempt];
        this.#setConnection(wait === undefined ? "given up" : "lost");
        if (wait === undefined) return;
        await new Promise((resolve) => setTimeout(resolve, wait));
        if (watchNumber !== this.#currentWatch) return;
        this.operation = { name: "subscribe", id: this.task.id };
      }
    }
  }

  /** Continue watching after the last event. */
  resume(): void {
    if (!this.task) return;
    this.operation = { name: "subscribe", id: this.task.id };
    this.#abort = new AbortController();
    this.endedAt = undefined;
    void this.watch();
  }

  /** Send the same message again, after the agent refused it. */
  retry(): void {
    this.error = null;
    this.endedAt = undefined;
    this.#abort = new AbortController();
    void (this.operation.name === "send" ? this.send() : this.watch());
  }

  /** Watch the task again from its first event; if the agent keeps no events, just load the task. */
  async follow(): Promise<void> {
    if (!this.task) return;
    this.isPartial = false;
    this.operation = { name: "subscribe", id: this.task.id };
    this.endedAt = undefined;
    await this.watch();
    if (!meansNoEvents(this.error)) return;
    this.error = null;
    this.isPartial = true;
    await this.load();
  }

  /** Load the task if only its ids and status are known, as after a reload of the page. */
  async load(): Promise<void> {
    if (!this.task || !this.isPartial) return;
    this.isPartial = false;
    try {
      this.task = dialect().task(await perform({ name: "get", id: this.task.id }));
    } catch (error) {
      this.#fail(error);
    }
    this.touch();
  }

  stop(): void {
    this.#currentWatch++;
    this.endedAt = Date.now();
    this.#abort.abort();
    this.#setConnection("ended");
  }

  async cancel(): Promise<void> {
    if (!this.task) return this.stop();
    try {
      this.task = dialect().task(await perform({ name: "cancel", id: this.task.id }));
    } catch (error) {
      this.error = error;
    }
    this.touch();
  }

  addEvent(timed: TimedEvent): void {
    const { event } = timed;
    if (timed.id !== undefined) this.lastEventId = timed.id;
    this.events.push(timed);
    this.task = fold(this.task, event);
    if (event.kind === "message") this.agentMessage = event.message;
    this.progress = progressOf(event) ?? this.progress;
    this.touch();
  }

  touch(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.changed.value++;
    }, RENDER_INTERVAL);
  }

  async #read(): Promise<void> {
    if (this.connection !== "lost") this.#setConnection("connecting");
    const exchange = { signal: this.#abort.signal, lastEventId: this.lastEventId, traceId: this.traceId };
    const onOpen = () => {
      this.error = null;
      this.#setConnection("open");
    };
    for await (const { id, result } of listen(this.operation, exchange, onOpen, this.#dialect)) {
      const event = this.#dialect.event(result);
      this.addEvent({ id, at: this.#timeOf(event), event, wire: result });
      if (this.operation.name === "subscribe" && (await this.#isWaiting())) return;
    }
  }

  /**
   * Whether the task is waiting for an answer. If so, reading stops, because an agent may keep a
   * subscription open until the task ends. The task is loaded, because a replayed pause may be outdated.
   */
  async #isWaiting(): Promise<boolean> {
    const { task } = this;
    if (!task || !isPaused(task.status.state)) return false;
    try {
      const operation = { name: "get" as const, id: task.id };
      const result = await perform(operation, { signal: this.#abort.signal }, this.#dialect);
      const { status } = this.#dialect.task(result);
      return isPaused(status.state) && status.timestamp === task.status.timestamp;
    } catch {
      return true;
    }
  }

  #timeOf(event: StreamEvent): number | undefined {
    const now = Date.now();
    if (!this.replays) return now;
    const status = event.kind === "status" ? event.status : event.kind === "task" && event.task.status;
    const timestamp = status ? status.timestamp : "metadata" in event && timestampOf(event.metadata);
    const reported = timestamp && Date.parse(timestamp);
    return reported || (now - this.#watchedSince > REPLAY_TIME ? now : undefined);
  }

  #setConnection(connection: Connection): void {
    this.connection = connection;
    this.touch();
  }

  #end(): void {
    if (this.task && isPaused(this.task.status.state)) void loadInbox();
    this.error = null;
    this.endedAt = Date.now();
    this.#setConnection("ended");
  }

  #fail(error: unknown): void {
    this.endedAt = Date.now();
    const isAborted = error instanceof DOMException && error.name === "AbortError";
    this.error = isAborted ? null : error;
    const isTaskOver = !this.task || isTerminal(this.task.status.state);
    this.isTaskLost = !isTaskOver && error instanceof RpcError && error.code === TASK_NOT_FOUND;
    this.#setConnection("ended");
  }
}

/** The time in the metadata of an artifact event, if the agent reports it. */
const timestampOf = (metadata: JsonObject | undefined) =>
  text(metadata?.timestamp) ?? text(object(metadata?.apcore)?.timestamp);

/** Whether to retry: after a lost connection, or if a proxy can't reach the agent. */
const isTemporary = (error: unknown) =>
  error instanceof ConnectionError ||
  (error instanceof HttpError && [502, 503, 504].includes(error.status));

/** Whether *error* only means that the agent has no further events of the task. */
export const meansNoEvents = (error: unknown) =>
  (error instanceof RpcError && [-32004, -32601].includes(error.code)) ||
  (error instanceof HttpError && error.status === 404);
