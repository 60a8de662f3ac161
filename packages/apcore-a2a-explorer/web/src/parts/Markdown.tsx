import { useMemo } from "preact/hooks";
import { markdownToHtml } from "./markdown";

export function Markdown({ source }: { source: string }) {
  const html = useMemo(() => markdownToHtml(source), [source]);
  return <div class="markdown" dangerouslySetInnerHTML={{ __html: html }} />;
}
