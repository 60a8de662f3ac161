/** A parser of server-sent events (WHATWG HTML §9.2) that arrive in pieces. */

export interface ServerEvent {
  id?: string;
  data: string;
}

export class EventParser {
  #pending: string[] = [];
  #data: string[] = [];
  #id: string | undefined;
  #endsWithCr = false;

  /** Parse a piece of text; return the events that it completes. */
  feed(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let start = 0;
    // a \r\n may be split between two pieces
    if (this.#endsWithCr && piece.startsWith("\n")) start = 1;
    if (piece) this.#endsWithCr = piece.endsWith("\r");
    const ends = /\r\n|\n|\r/g;
    ends.lastIndex = start;
    for (let end = ends.exec(piece); end; end = ends.exec(piece)) {
      this.#pending.push(piece.slice(start, end.index));
      const event = this.#parseLine(this.#pending.join(""));
      if (event) events.push(event);
      this.#pending = [];
      start = ends.lastIndex;
    }
    if (start < piece.length) this.#pending.push(piece.slice(start));
    return events;
  }

  #parseLine(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    if (line.startsWith(":")) return undefined;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    if (!this.#data.length) return undefined;
    const event = { id: this.#id, data: this.#data.join("\n") };
    this.#data = [];
    return event;
  }
}
