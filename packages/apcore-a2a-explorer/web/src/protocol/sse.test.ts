import { describe, expect, it } from "vitest";
import { EventParser } from "./sse";

const SOURCE = ': hello\r\nid: 1\ndata: {"a":1}\n\ndata: two\ndata:lines\n\nevent: x\n\nid: 3\rdata: ü\r\r';

const EVENTS = [
  { id: "1", data: '{"a":1}' },
  { id: "1", data: "two\nlines" },
  { id: "3", data: "ü" },
];

describe("server-sent events", () => {
  it("are parsed from one piece", () => {
    expect(new EventParser().feed(SOURCE)).toEqual(EVENTS);
  });

  it("are parsed from pieces of any size", () => {
    for (const size of [1, 2, 3, 7]) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < SOURCE.length; at += size) events.push(...parser.feed(SOURCE.slice(at, at + size)));
      expect(events).toEqual(EVENTS);
    }
  });

  it("are not emitted before they are complete", () => {
    const parser = new EventParser();
    expect(parser.feed("data: half")).toEqual([]);
    expect(parser.feed("\n")).toEqual([]);
    expect(parser.feed("\n")).toEqual([{ id: undefined, data: "half" }]);
  });

  it("of five megabytes are parsed in linear time", () => {
    const parser = new EventParser();
    const piece = "x".repeat(1000);
    parser.feed("data: ");
    for (let count = 0; count < 5000; count++) parser.feed(piece);
    expect(parser.feed("\n\n")[0]?.data.length).toBe(5_000_000);
  });
});
