import { describe, expect, it } from "vitest";
import { asCurl, asJavaScript, asPython, python } from "./copy";
import type { Operation } from "./types";
import { v03 } from "./v03";
import { v1 } from "./v1";

const target = { url: "https://agent.example.com/" };
const stream: Operation = {
  name: "stream",
  message: { messageId: "m", role: "user", parts: [{ data: { text: "it's", on: true, none: null } }] },
  metadata: { skillId: "s" },
};

describe("curl", () => {
  it("quotes the shell's special characters", () => {
    const source = asCurl(v1, stream, target);
    expect(source).toContain("curl -sN 'https://agent.example.com/'");
    expect(source).toContain("-H 'A2A-Version: 1.0'");
    expect(source).toContain(String.raw`it'\''s`);
  });

  it("has a variable instead of the credentials", () => {
    const credentials = { header: "Authorization", value: "Bearer $A2A_TOKEN" };
    expect(asCurl(v03, stream, { ...target, credentials })).toContain('-H "Authorization: Bearer $A2A_TOKEN"');
  });

  it("takes the API key for the query string from the environment", () => {
    expect(asCurl(v1, stream, { ...target, queryKey: "a key" })).toContain(`'https://agent.example.com/''?a%20key='"$A2A_TOKEN"`);
  });

  it("runs no command from the card", () => {
    const credentials = { header: "X-`id`$HOME", value: "$A2A_TOKEN" };
    const source = asCurl(v1, stream, { ...target, credentials });
    expect(source).toContain(`-H 'X-\`id\`$HOME: '"$A2A_TOKEN"`);
  });
});

describe("Python", () => {
  it("uses Python's literals", () => {
    expect(python({ a: [true, null, 1.5, 'x"\n'] })).toBe('{"a": [True, None, 1.5, "x\\"\\n"]}');
  });

  it("has the skill, the version and the credentials' variable", () => {
    const credentials = { header: "X-API-Key", value: "$A2A_TOKEN" };
    const source = asPython(v03, stream, { ...target, credentials });
    expect(source).toContain('protocol="0.3", auth=APIKey(os.environ["A2A_TOKEN"])');
    expect(source).toContain("client.stream_message(");
    expect(source).toContain('skill="s"');
  });

  it("takes the API key for the query string from the environment", () => {
    expect(asPython(v1, stream, { ...target, queryKey: "a key" })).toContain('auth=APIKey(os.environ["A2A_TOKEN"])');
  });

  it("reads files instead of including their bytes", () => {
    const message = { ...stream.message, parts: [{ raw: "QQ==", filename: "a.csv" }] };
    const source = asPython(v1, { ...stream, name: "send", message }, target);
    expect(source).toContain('Part(raw=Path("a.csv").read_bytes(), filename="a.csv")');
    expect(source).toContain("from pathlib import Path");
  });

  it("keeps the names and media types of texts and data", () => {
    const parts = [
      { text: "a,b", filename: "a.csv", mediaType: "text/csv" },
      { text: "", mediaType: "text/plain" },
      { data: { a: 1 }, mediaType: "application/json" },
      { data: null },
    ];
    const source = asPython(v1, { ...stream, name: "send", message: { ...stream.message, parts } }, target);
    expect(source).toContain('Part(text="a,b", filename="a.csv", media_type="text/csv")');
    expect(source).toContain('Part(text="", media_type="text/plain")');
    expect(source).toContain('Part(data={"a": 1}, media_type="application/json")');
    expect(source).toContain("Part(data=None)");
  });
});

describe("JavaScript", () => {
  it("reads the credentials from the environment", () => {
    const credentials = { header: "Authorization", value: "Bearer $A2A_TOKEN" };
    expect(asJavaScript(v1, stream, { ...target, credentials })).toContain(
      '"Authorization": `Bearer ${process.env.A2A_TOKEN}`,',
    );
    expect(asJavaScript(v1, stream, { ...target, queryKey: "a key" })).toContain(
      "fetch(`https://agent.example.com/?a%20key=${encodeURIComponent(process.env.A2A_TOKEN)}`, {",
    );
  });

  it("runs no code from the card", () => {
    const url = "https://agent.example.com/`${run()}\\";
    const source = asJavaScript(v1, stream, { ...target, url, queryKey: "key" });
    expect(source).toContain("fetch(`https://agent.example.com/\\`\\${run()}\\\\?key=${encodeURIComponent(");
  });

  it("reads files instead of including their bytes", () => {
    const message = { ...stream.message, parts: [{ raw: "QQ==", filename: "a.csv" }] };
    for (const dialect of [v1, v03]) {
      const source = asJavaScript(dialect, { ...stream, name: "send", message }, target);
      expect(source).toContain(': await readFile("a.csv", "base64")');
      expect(source).not.toContain("QQ==");
    }
  });

  it("continues a stream after the last event", () => {
    const source = asJavaScript(v1, { name: "subscribe", id: "t" }, { ...target, lastEventId: "5" });
    expect(source).toContain('"Last-Event-ID": "5",');
    expect(source).toContain("for await (const piece of response.body");
  });

  it("reports the whole response if it is an error, not a stream", async () => {
    const body = '{\n  "error": {"code": -32004, "message": "No events are kept"}\n}\n';
    const run = new Function("fetch", `return (async () => { ${asJavaScript(v1, stream, target)} })()`);
    const fetch = () => new Response(body, { headers: { "Content-Type": "application/json" } });
    await expect(run(fetch)).rejects.toThrow(body);
  });
});
