import { signal } from "@preact/signals";
import { ConnectionError, HttpError, RpcError } from "../protocol/errors";
import { fold } from "../protocol/fold";
import { progressOf, type Progress } from "../protocol/progress";
import { isPaused, isSettled } from "../protocol/states";
import type { Message, Operation, StreamEvent, Task } from "../protocol/types";
import { ask, listen } from "./agent";
import { dialect } from "./settings";
import { loadInbox } from "./tasks";

export interface TimedEvent {
  id?: string;
  /** Milliseconds; undefined for what happened before somebody watched. */
  at: number | undefined;
  event: StreamEvent;
}

/** "lost" is tried again by itself, "given up" is not. */
export type Connection = "idle" | "connecting" | "open" | "lost" | "given up" | "ended";

// several within three seconds, after which agents of apcore-a2a cancel what nobody watches
const RETRIES = [250, 500, 750, 1000, 2000, 4000, 8000, 16000];
const FRAME = 80;
const CATCH_UP = 700;

/**
 * A task that is watched. Its members are plain, for there may be thousands of events;
 * `changed` tells views to look again, at most every FRAME milliseconds.
 */
export class Run {
  task: Task | null = null;
  answer: Message | null = null;
  events: TimedEvent[] = [];
  progress: Progress | null = null;
  connection: Connection = "idle";
  error: unknown = null;
  lastEventId: string | undefined;
  readonly startedAt = Date.now();
  endedAt: number | undefined;
  /** Whether its first events are old ones. */
  replays = false;
  /** Whether it is about an answer that the task did not wait for any more. */
  late = false;
  readonly changed = signal(0);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();
  /** Which call of `watch` is the one that counts. */
  #turn = 0;
  /** Its stream goes on in the version that it was begun in, whatever is chosen meanwhile. */
  #speaks = dialect();

  constructor(
    readonly skillId: string | undefined,
    public operation: Operation,
  ) {}

  get active(): boolean {
    return this.connection === "connecting" || this.connection === "open";
  }

  /** Send without a stream: blocking or not. */
  async send(): Promise<void> {
    this.#connect("connecting");
    try {
      const result = await ask(this.operation, { signal: this.#abort.signal }, this.#speaks);
      this.take({ at: Date.now(), event: this.#speaks.event(result) });
      this.#end();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Send or subscribe, and read the events; a connection that breaks is made anew. */
  async watch(): Promise<void> {
    const turn = ++this.#turn;
    for (let attempt = 0; ; attempt++) {
      const before = this.events.length;
      try {
        await this.#read();
        if (!this.task || isSettled(this.task.status.state)) return this.#end();
        throw new ConnectionError("The stream ended before the task did");
      } catch (error) {
        if (turn !== this.#turn) return;
        if (!isPassing(error) || !this.task) return this.#fail(error);
        if (this.events.length > before) attempt = 0;
        this.error = error;
        const wait = RETRIES[attempt];
        this.#connect(wait === undefined ? "given up" : "lost");
        if (wait === undefined) return;
        await new Promise((resolve) => setTimeout(resolve, wait));
        if (turn !== this.#turn) return;
        this.operation = { name: "subscribe", id: this.task.id };
      }
    }
  }

  /** Watch on from the last event. */
  resume(): void {
    if (!this.task) return;
    this.operation = { name: "subscribe", id: this.task.id };
    this.#abort = new AbortController();
    this.endedAt = undefined;
    void this.watch();
  }

  stop(): void {
    this.#turn++;
    this.endedAt = Date.now();
    this.#abort.abort();
    this.#connect("ended");
  }

  async cancel(): Promise<void> {
    if (!this.task) return this.stop();
    try {
      this.task = dialect().task(await ask({ name: "cancel", id: this.task.id }));
    } catch (error) {
      this.error = error;
    }
    this.touch();
  }

  take(timed: TimedEvent): void {
    const { event } = timed;
    if (timed.id !== undefined) this.lastEventId = timed.id;
    this.events.push(timed);
    this.task = fold(this.task, event);
    if (event.kind === "message") this.answer = event.message;
    this.progress = progressOf(event) ?? this.progress;
    this.touch();
  }

  touch(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.changed.value++;
    }, FRAME);
  }

  async #read(): Promise<void> {
    if (this.connection !== "lost") this.#connect("connecting");
    const exchange = { signal: this.#abort.signal, lastEventId: this.lastEventId };
    const opened = () => {
      this.error = null;
      this.#connect("open");
    };
    for await (const { id, result } of listen(this.operation, exchange, opened, this.#speaks)) {
      const event = this.#speaks.event(result);
      this.take({ id, at: this.#timeOf(event), event });
    }
  }

  #timeOf(event: StreamEvent): number | undefined {
    const now = Date.now();
    if (!this.replays) return now;
    const status = event.kind === "status" ? event.status : event.kind === "task" && event.task.status;
    const told = status && Date.parse(status.timestamp ?? "");
    return told || (now - this.startedAt > CATCH_UP ? now : undefined);
  }

  #connect(connection: Connection): void {
    this.connection = connection;
    this.touch();
  }

  #end(): void {
    if (this.task && isPaused(this.task.status.state)) void loadInbox();
    this.error = null;
    this.endedAt = Date.now();
    this.#connect("ended");
  }

  #fail(error: unknown): void {
    this.endedAt = Date.now();
    const aborted = error instanceof DOMException && error.name === "AbortError";
    this.error = aborted ? null : error;
    this.#connect("ended");
  }
}

/** Whether the same request may do better later: also what proxies say of an agent that is away. */
const isPassing = (error: unknown) =>
  error instanceof ConnectionError ||
  (error instanceof HttpError && [502, 503, 504].includes(error.status));

/** Whether a refusal only says that there is nothing to watch any more. */
export const isOver = (error: unknown) =>
  (error instanceof RpcError && [-32004, -32601].includes(error.code)) ||
  (error instanceof HttpError && error.status === 404);
