"""Hostile texts, agents made of them, and checks that they did no harm."""

import re
from typing import Any

from playwright.sync_api import Dialog, Page, expect

from tests.server.checking_client import Json

from .browsing import DRAWN, Visit
from .fake import card_of, skill_of, task_of

EVIL = "https://evil.example"
BIDI_OVERRIDE = "report\u202etxt.exe\u2066"
LONG = "W" * 3000
CORPUS = [
    "<script>window.ran = 1</script>",
    "</script><script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 1">',
    f"<img src='{EVIL}/i.png'><video src='{EVIL}/v'></video><link href='{EVIL}/l' rel=stylesheet>",
    "'><svg onload=window.ran=1><style>*{display:none}</style></svg>",
    "</title></textarea></select><iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    f"<base href='{EVIL}'><form action='{EVIL}'><button>Go</button></form><math><mtext>",
    "<a href='javascript:window.ran=1' onclick='window.ran=1'>here</a><object data='x'></object>",
    "javascript:window.ran=1//https://",
    "data:text/html,<script>parent.ran = 1</script>",
    "vbscript:x",
    f"[here](javascript:window.ran=1) ![i]({EVIL}/i.png) [data](data:text/html,x) [[x]](//x)",
    f"**good** [there]({EVIL}/page 'title\" onmouseover=\"window.ran=1') <{EVIL}/auto> | `x`",
    "{{constructor.constructor('window.ran = 1')()}} ${window.ran = 1} <%= 1 %> #{1}",
    "${jndi:ldap://x} ;window.ran=1; --><!-- ]]> \x00\x1b[31m \r\n\u2028 %00 %E0%A4%A",
    "../../../etc/passwd?a=b#/tasks",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "toString",
    BIDI_OVERRIDE,
    LONG,
    "no \ud800 text",
    "> " * 3000 + "deep",
    "[" * 5000,
]

FIND_HARM = """() => {
    const all = [...document.querySelectorAll("*")];
    const own = (url) => url.startsWith(location.href.split("#")[0] + "#");
    const links = [...document.querySelectorAll("a[href]")].filter((link) => !own(link.href));
    const {scrollWidth, clientWidth} = document.documentElement;
    return [
        ...(scrollWidth > clientWidth ? [`the page is ${scrollWidth} pixels wide`] : []),
        ...(window.ran === undefined ? [] : ["a script ran"]),
        ...Object.keys(Object.prototype).map((name) => `every object has ${name}`),
        ...(document.scripts.length === 1 ? [] : ["there are more scripts"]),
        ...document.querySelectorAll("iframe, object, embed, base, video, math, portal"),
        ...document.querySelectorAll("form[action], body style, body link, [srcset], [srcdoc]"),
        ...[...document.images, ...document.querySelectorAll("audio")].filter(
            ({src}) => !src.startsWith("blob:")
        ),
        ...all.filter((element) => [...element.attributes].some(({name}) => name.startsWith("on"))),
        ...links.filter(({protocol}) => !["http:", "https:", "mailto:"].includes(protocol)),
        ...links.filter(({rel, target}) => rel !== "noopener noreferrer" || target !== "_blank"),
    ].map((harm) => harm.outerHTML?.slice(0, 200) ?? harm);
}"""

OPEN_ALL = """async () => {
    const frame = () => new Promise((done) => setTimeout(done));
    for (const details of document.querySelectorAll("main details")) details.open = true;
    await frame();
    for (const details of document.querySelectorAll("main details")) details.open = true;
    const selector = "main [role=group] button, main .twig, main [aria-label=Events] [role=option]";
    for (const element of [...document.querySelectorAll(selector)].slice(0, 60)) {
        if (element.isConnected) element.click();
    }
    await frame();
}"""


class HostileVisit:
    """A page that shows a hostile agent."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.page = visit.page
        self.dialogs: list[str] = []
        self.page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def go(self, *path: str) -> Page:
        """Open the view whose path has these segments."""
        self.page.evaluate(
            "(path) => location.hash = '#/' + path", "/".join(map(quote_segment, path))
        )
        self.page.evaluate(DRAWN)
        return self.page

    def open_all(self) -> None:
        """Open all details, and press up to 60 buttons and options of the content."""
        self.page.evaluate(OPEN_ALL)

    def harm(self) -> list[str]:
        """Return signs of harm in the page, and dialogs, errors, new pages and foreign requests."""
        harm: list[str] = self.page.evaluate(FIND_HARM)
        pages = [page.url for page in self.page.context.pages[1:]]
        return harm + self.dialogs + self.visit.foreign_requests() + self.visit.errors + pages


def quote_segment(segment: str) -> str:
    """Quote a segment of a view's path, with lone surrogates replaced: JavaScript refuses them."""
    safe = segment.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(f"%{byte:02X}" for byte in safe.encode())


def expect_content(page: Page) -> None:
    """Expect that the page is not blank: it has its header, and some text."""
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"\S"))


def schema_of(text: str) -> Json:
    """Return a schema with *text* everywhere."""
    texts = {"title": text, "description": text}
    members = {
        text: {"type": "string", **texts, "default": text},
        "choice": {"enum": [text, "other"], **texts, "default": text},
        "list": {"type": "array", "items": {"type": "string", **texts}, "default": [text], **texts},
        "long": {"type": "string", "contentMediaType": "text/markdown", **texts},
        "file": {"type": "string", "contentEncoding": "base64", "contentMediaType": text, **texts},
        "nested": {"type": "object", "properties": {text: {"type": "integer", **texts}}, **texts},
        "either": {"oneOf": [{"const": text, **texts}, {"type": "object", **texts}]},
    }
    return {"type": "object", "properties": members, "required": [text], **texts, "$comment": text}


def hostile_skill(text: str) -> tuple[Json, Json]:
    """Return a skill, and its details in the extension."""
    example = {"title": text, "description": text, "inputs": {text: text}, "output": [{text: text}]}
    modes = {"inputModes": [text, "text/plain"], "outputModes": [text]}
    skill = skill_of(text, name=text, description=text, tags=[text], examples=[text], **modes)
    details = {"documentation": text, "annotations": {text: text, "streaming": text}}
    schemas = {"inputSchema": schema_of(text), "outputSchema": schema_of(text)}
    return skill, {"examples": [example], **details, **schemas}


def hostile_card() -> Json:
    """Return a card with hostile texts everywhere."""
    texts = " ".join(CORPUS[:16])
    skills = [(text, *hostile_skill(text)) for text in CORPUS]
    schemes = {
        text: {"apiKeySecurityScheme": {"location": text, "name": text, "description": text}}
        for text in CORPUS
    }
    card = card_of(
        *(skill for _, skill, _ in skills), details={text: details for text, _, details in skills}
    )
    card["capabilities"]["extensions"] += [{"uri": text, "description": text} for text in CORPUS]
    return {
        **card,
        **{"name": texts, "description": texts, "version": texts, "documentationUrl": CORPUS[8]},
        "provider": {"organization": texts, "url": CORPUS[9]},
        "supportedInterfaces": [
            {"url": text, "protocolBinding": text, "protocolVersion": text} for text in CORPUS
        ],
        "securitySchemes": schemes,
        "securityRequirements": [{"schemes": {text: []}} for text in CORPUS],
    }


def parts_of(text: str) -> list[Json]:
    """Return a part of each kind, with *text* in it."""
    names = {"mediaType": text, "filename": text}
    return [
        {"text": text},
        {"text": text, "mediaType": "text/markdown"},
        {"data": {text: text, "deep": [{text: [text]}]}},
        {"data": [{text: text}, {"plain": 1}]},
        {"data": {text: f"{text}\n{text}", "rows": [{text: text}], "nested": {text: [text]}}},
        {"data": {"bytes": "UklGRg==", "mimeType": "audio/wav", "name": text, text: text}},
        {"data": {"bytes": text, "mimeType": text, "lines": [{text: [text]}]}},
        {"data": {"choice": f"{text}\n", "nested": {text: f"# {text}\n"}, "list": [text, "\n"]}},
        {"raw": "PHN2Zz4=", **names},
        {"raw": "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+", "mediaType": "image/svg+xml", "filename": text},
        {"raw": text, **names},
        {"url": text, **names},
        {"url": f"{EVIL}/{text[:50]}", **names},
    ]


def artifacts() -> list[Json]:
    """Return an artifact for each hostile text."""
    return [
        {"artifactId": text, "name": text, "description": text, "parts": parts_of(text)}
        for text in CORPUS
    ]


def message_of(text: str, *more: Json) -> Json:
    """Return a message from the agent."""
    ids = {"messageId": text, "contextId": text}
    return {"role": "ROLE_AGENT", "parts": [*parts_of(text), *more], **ids}


def paused_task(text: str, kind: str) -> Json:
    """Return a task that is paused for an `approval` or for `input`."""
    fields = {"id": text, "skill": text, "expiresAt": text, "arguments": {text: text}}
    data = {"choices": [text] if len(text) % 2 else [], text: text}
    extras = {"field": text, "schema": schema_of(text), "data": data}
    pending_input = {"data": {kind: {**fields, **extras}}}
    task = hostile_task(text, "INPUT_REQUIRED")
    task["status"]["message"] = message_of(text, pending_input)
    return task


def hostile_task(text: str, state: str = "COMPLETED", **members: Any) -> Json:
    """Return a task with *text* everywhere."""
    ids = {"id": text, "contextId": text, "metadata": {"skillId": text, text: text}}
    task = task_of(state, **ids, history=[message_of(text)], **members)
    task["status"] |= {"timestamp": text, "message": message_of(text), text: text}
    return task
