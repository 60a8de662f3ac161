import type { ComponentChildren } from "preact";
import { safeUrl } from "./markdown";

/** An external link, or plain text if the URL is not safe to link to. */
export function Link({ url, children }: { url: string | undefined; children?: ComponentChildren }) {
  const safe = safeUrl(url);
  if (!safe) return <span class="breakable">{children ?? url}</span>;
  return (
    <a class="breakable" href={safe} target="_blank" rel="noopener noreferrer">
      {children ?? url}
    </a>
  );
}
