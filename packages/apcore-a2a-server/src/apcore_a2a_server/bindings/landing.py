"""The page at the agent's address, for people who open it in a browser."""

from html import escape

from apcore_a2a_core import clean
from starlette.types import Scope, Send

from apcore_a2a_server.middleware.auth import headers_of
from apcore_a2a_server.middleware.errors import TENANT

from .http import respond

MAX_NAME = 200
"""Maximum length of the agent's name on the page, in characters."""
TEMPLATE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{name}</title>
<h1>{name}</h1>
<p>This is an A2A agent. Programs call it with JSON-RPC or HTTP+JSON; its card says how.</p>
<ul>
{links}
</ul>
</html>
"""


class LandingPage:
    """The response to requests other than POST: HTML for the GET of a browser, otherwise 405.

    A browser is a client whose `Accept` header names HTML (RFC 9110 §12.5.1); programs send
    `*/*`, `application/json` or nothing. The paths of tenants have no page.

    Args:
        name: The agent's name.
        explorer_path: The path of the explorer within the agent; None if it is off.
    """

    def __init__(self, name: str, explorer_path: str | None = None) -> None:
        self._page = landing_page(name, explorer_path).encode()

    async def respond(self, scope: Scope, send: Send) -> None:
        """Respond to a request that is not a POST."""
        accepted = headers_of(scope).get("accept", "").lower().split(",")
        media_types = [media_range.split(";")[0].strip() for media_range in accepted]
        wants_page = "text/html" in media_types and TENANT not in scope
        if scope["method"] == "GET" and wants_page:
            await respond(send, self._page, media_type=b"text/html; charset=utf-8")
        else:
            hint = {"error": "Send JSON-RPC 2.0 here with POST"}
            await respond(send, hint, status=405, headers=[(b"allow", b"POST")])


def landing_page(name: str, explorer_path: str | None = None) -> str:
    """Return HTML with the name of the agent, and links to its card and its explorer.

    The page loads no other files, as its security headers forbid them. The links are relative,
    since an agent may be mounted at any path, or be behind a proxy that removes a prefix.

    Example:
        ```python
        from apcore_a2a_server.bindings.landing import landing_page

        print(landing_page("Ada & Co", "/explorer").splitlines()[5])
        #> <h1>Ada &amp; Co</h1>
        ```
    """
    targets = {"Agent Card": ".well-known/agent-card.json"}
    if explorer_path is not None:
        targets["Explorer"] = explorer_path.strip("/")
    links = "\n".join(
        f'<li><a href="./{escape(path)}">{text}</a></li>' for text, path in targets.items()
    )
    return TEMPLATE.format(name=escape(clean(name, MAX_NAME)), links=links)
