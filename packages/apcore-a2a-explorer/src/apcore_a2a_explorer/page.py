"""The explorer's page with its content security policy, served as static bytes."""

import gzip
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INLINE = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1>", re.DOTALL)
BASE_TAG = '<meta name="agent-base" content="./"'
"""The beginning of the element with the URL of the agent (or its proxy), relative to the page."""
AGENT_URL_TAG = '<meta name="agent-url" content=""'
"""The beginning of the element with the URL of the agent behind a proxy."""


class Page:
    """The page at one path.

    Attributes:
        base: URL of the agent (or its proxy), relative to the page.
        policy: The content security policy of the page.

    Args:
        path: Path of the page below the agent, such as `/explorer`.
        agent_url: URL of the agent if the page gets to it through a proxy.

    Example:
        ```python
        from apcore_a2a_explorer import Page

        page = Page("/tools/explorer")
        print("connect-src 'self'" in page.policy, page.base)
        #> True ../
        ```
    """

    def __init__(self, path: str, agent_url: str = "") -> None:
        self.base = "../" * (path.count("/") - 1) or "./"
        agent_url_tag = AGENT_URL_TAG.replace('""', f'"{escape(agent_url)}"')
        text = document().replace(BASE_TAG, BASE_TAG.replace("./", self.base))
        text = text.replace(AGENT_URL_TAG, agent_url_tag)
        self._body = text.encode()
        self._compressed = gzip.compress(self._body, mtime=0)
        self._digest = sha256(self._body).hexdigest()[:32]
        self.policy = policy(text)

    async def show(self, request: Request) -> Response:
        """Respond with the page, or with 304 if the browser has cached it (RFC 9110 §13.1.2)."""
        compressed = accepts_gzip(request.headers.get("accept-encoding", ""))
        etag = f'"{self._digest}{"-gzip" if compressed else ""}"'
        headers = {
            "cache-control": "no-cache",
            "content-security-policy": self.policy,
            "etag": etag,
            "vary": "accept-encoding",
        }
        cached = request.headers.get("if-none-match", "").split(",")
        if etag in [tag.strip().removeprefix("W/") for tag in cached]:
            return Response(status_code=304, headers=headers)
        if compressed:
            headers["content-encoding"] = "gzip"
        body = self._compressed if compressed else self._body
        return Response(body, media_type="text/html", headers=headers)


def routes(path: str = "/explorer", agent_url: str = "") -> list[Route]:
    """Return the routes for the page at *path*, with and without a trailing slash.

    Args:
        path: Path of the page below the agent.
        agent_url: URL of the agent if the page gets to it through a proxy.

    Raises:
        ValueError: *path* is not a plain path such as `/explorer`.
    """
    normalized = "/" + path.strip("/")
    if not re.fullmatch(r"(/(?!\.+(/|$))[A-Za-z0-9._~-]+)+", normalized):
        raise ValueError(f"The explorer's path must be like /explorer, not {path!r}")
    return [Route(full, Page(full, agent_url).show) for full in (normalized, normalized + "/")]


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client accepts gzip, by its `Accept-Encoding` (RFC 9110 §12.5.3)."""
    weights = {"gzip": 0.0, "*": 0.0}
    for coding in accept_encoding.split(","):
        name, _, parameter = coding.partition(";")
        weight = re.fullmatch(r"\s*q=([01](\.\d{0,3})?)\s*", parameter)
        weights[name.strip().lower()] = float(weight[1]) if weight else 1.0
    mentions_gzip = "gzip" in accept_encoding.lower()
    return weights["gzip" if mentions_gzip else "*"] > 0


def policy(text: str) -> str:
    """Return a content security policy that allows only the scripts and styles in *text*."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for element, content in INLINE.findall(text):
        hashes[element].append(f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(hashes['script'])}",
            f"style-src {' '.join(hashes['style'])}",
            "connect-src 'self'",
            "img-src 'self' data: blob:",
            "media-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


@cache
def document() -> str:
    """Return the page that was built from `web/`."""
    return files("apcore_a2a_explorer").joinpath("index.html").read_text(encoding="utf-8")
