"""The page, as bytes that never change, and the rules that the browser holds it to."""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INLINE = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1>", re.DOTALL)
BASE = '<meta name="agent-base" content="./"'
"""Where the page says how its agent is reached from its own address."""


class Page:
    """The page at one address.

    Args:
        path: Where it is, as seen from the agent: `/explorer`.

    Example:
        ```python
        from apcore_a2a_explorer import Page

        page = Page("/tools/explorer")
        print("connect-src 'self'" in page.policy, page.base)
        #> True ../
        ```
    """

    def __init__(self, path: str) -> None:
        self.base = "../" * (path.count("/") - 1) or "./"
        text = document().replace(BASE, BASE.replace("./", self.base))
        self._body = text.encode()
        self._etag = f'"{sha256(self._body).hexdigest()[:32]}"'
        self.policy = policy(text)

    async def show(self, request: Request) -> Response:
        """The page; 304 when the browser has it already (RFC 9110 §13.1.2)."""
        headers = {
            "cache-control": "no-cache",
            "content-security-policy": self.policy,
            "etag": self._etag,
        }
        known = [tag.strip().removeprefix("W/") for tag in _known(request).split(",")]
        if self._etag in known:
            return Response(status_code=304, headers=headers)
        return Response(self._body, media_type="text/html", headers=headers)


def routes(path: str = "/explorer") -> list[Route]:
    """The page at *path*, with a slash behind it and without.

    Raises:
        ValueError: *path* is none.
    """
    plain = "/" + path.strip("/")
    if not re.fullmatch(r"(/(?!\.+(/|$))[A-Za-z0-9._~-]+)+", plain):
        raise ValueError(f"The explorer's path must be one such as /explorer, not {path!r}")
    return [Route(place, Page(place).show) for place in (plain, plain + "/")]


def policy(text: str) -> str:
    """A content security policy under which nothing runs but what the page itself holds."""
    found: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in INLINE.findall(text):
        found[kind].append(f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(found['script'])}",
            f"style-src {' '.join(found['style'])}",
            "connect-src 'self'",
            "img-src 'self' data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


@cache
def document() -> str:
    """The page as it was built."""
    return files("apcore_a2a_explorer").joinpath("index.html").read_text(encoding="utf-8")


def _known(request: Request) -> str:
    return request.headers.get("if-none-match", "")
