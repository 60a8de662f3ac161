import { signal } from "@preact/signals";

export interface Route {
  /** The decoded segments of the path. */
  path: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const route = signal(read());

addEventListener("hashchange", () => {
  route.value = read();
});

/** The address of a view: `href("tasks", id)` is `#/tasks/<id>`. */
export function href(...path: string[]): string {
  // encodeURIComponent throws for a lone surrogate
  return `#/${path.map((segment) => encodeURIComponent(segment.replace(/\p{Surrogate}/gu, "\ufffd"))).join("/")}`;
}

export function go(address: string): void {
  location.hash = address;
}
