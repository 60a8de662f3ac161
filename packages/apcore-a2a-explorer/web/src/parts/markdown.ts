import DOMPurify from "dompurify";
import { Marked } from "marked";

const marked = new Marked({ gfm: true, breaks: false, async: false });
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

/** *source* as HTML that can do nothing but show text and links. */
export function markdownToHtml(source: string): string {
  return purify.sanitize(marked.parse(source) as string, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "title", "start"],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  });
}

/** The address, if it is one that a link may have. */
export function safeUrl(source: string | undefined): string | undefined {
  if (!source || !URL.canParse(source)) return undefined;
  return ["http:", "https:", "mailto:"].includes(new URL(source).protocol) ? source : undefined;
}
