import DOMPurify from "dompurify";
import { Marked } from "marked";

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escapeHtml = (source: string) => source.replace(/[&<>"]/g, (character) => ESCAPES[character]!);

/** The only HTML that is kept; all other HTML is shown as text. */
const BREAK = /^<br\s*\/?>$/i;

const marked = new Marked({
  gfm: true,
  breaks: false,
  async: false,
  renderer: {
    html: ({ text }) => (BREAK.test(text.trim()) ? text : escapeHtml(text)),
    // images become links, so that nothing is loaded from other hosts
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
  },
});
const purify = DOMPurify(window);

const TAGS = (
  "p br hr h1 h2 h3 h4 h5 h6 em strong del code pre blockquote ul ol li a " +
  "table thead tbody tr th td"
).split(" ");

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

/** Convert Markdown to safe HTML, which contains only formatted text and links. */
export function markdownToHtml(source: string): string {
  return purify.sanitize(parseMarkdown(source), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "title", "start"],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  });
}

/** Parse Markdown; source that is nested too deeply stays text. */
function parseMarkdown(source: string): string {
  try {
    return marked.parse(source) as string;
  } catch {
    return `<pre>${escapeHtml(source)}</pre>`;
  }
}

/** The URL in its normal form, if it is safe to link to. */
export function safeUrl(source: string | undefined): string | undefined {
  if (!source || !URL.canParse(source)) return undefined;
  const { protocol, href } = new URL(source);
  return ["http:", "https:", "mailto:"].includes(protocol) ? href : undefined;
}
