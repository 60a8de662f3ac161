"""URLs of agents: validation, comparison, and text without secrets."""

from collections.abc import Iterable
from typing import TypeAlias

import httpx

Origin: TypeAlias = tuple[str, str, int | None]
"""The scheme, the host and the port of a URL."""

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
"""Hosts that refer to this machine, including wildcard addresses used as destinations."""


def is_agent_url(url: httpx.URL) -> bool:
    """Return whether an agent can be at *url*: http(s), valid host and port, no credentials."""
    try:
        # Sockets encode the host like this, and refuse labels that are too long.
        url.raw_host.decode("ascii").encode("idna")
        has_host = bool(url.host)
    except UnicodeError:
        return False
    is_valid_port = url.port is None or 0 < url.port < 65536
    return url.scheme in ("http", "https") and has_host and is_valid_port and not url.userinfo


def origin(url: httpx.URL) -> Origin:
    """Return the origin of *url* (RFC 6454).

    The hosts in `LOOPBACK_HOSTS` count as one host: the card of an agent that listens on all
    addresses may say `localhost`, even if the caller's URL says `127.0.0.1`.

    Example:
        ```python
        import httpx
        from apcore_a2a_client.agent_urls import origin

        print(origin(httpx.URL("http://127.0.0.1:8000/a")))
        #> ('http', 'localhost', 8000)
        ```
    """
    host = "localhost" if url.host in LOOPBACK_HOSTS else url.host
    return url.scheme, host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def origin_text(url: httpx.URL) -> str:
    """Return the origin of *url* as text, such as `https://agent.example.com:8443`."""
    return str(url.copy_with(raw_path=b"/", userinfo=b"", fragment=None)).rstrip("/")


def origins(texts: Iterable[str]) -> frozenset[Origin]:
    """Return the origins in *texts*.

    Raises:
        TypeError: *texts* is a single string.
        ValueError: A text is not an origin.
    """
    if isinstance(texts, str):
        raise TypeError("credentials_for takes a list of origins, not a string")
    return frozenset(map(parse_origin, texts))


def parse_origin(text: str) -> Origin:
    """Return the origin in *text*.

    Raises:
        ValueError: *text* is not `scheme://host` or `scheme://host:port`. The message does not
            quote *text*, which may contain a password.
    """
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        url = httpx.URL()
    if not is_agent_url(url) or url.raw_path != b"/" or url.fragment:
        raise ValueError("Not an origin: write scheme, host and port, as in https://host:8443")
    return origin(url)


def path_of(url: httpx.URL) -> bytes:
    """Return the path of *url*, without trailing slashes."""
    return url.raw_path.partition(b"?")[0].rstrip(b"/")


def redacted(url: httpx.URL) -> str:
    """Return *url* without the parts that can be secret: user, password, query and fragment."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def agent_url(text: str) -> httpx.URL:
    """Return the agent's URL; *text* is this URL or the URL of the agent's card (FR-CLI-001.2).

    Raises:
        ValueError: *text* is not an http or https URL, or has credentials or a query; the message
            shows no password.
    """
    expected = "The agent's URL must be http or https with a host, such as http://127.0.0.1:8000"
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise ValueError(f"{expected}; this is not a URL") from None
    if url.userinfo:
        raise ValueError("The agent's URL has credentials: pass auth= (command line: --auth)")
    if url.query:
        raise ValueError("The agent's URL takes no query: use auth= or headers= instead")
    if lacks_scheme(text):
        address = text.partition("#")[0]
        raise ValueError(f"The agent's URL needs a scheme: got {address!r}, write http://{address}")
    if not is_agent_url(url) or any(character.isspace() for character in text):
        raise ValueError(expected + _describe_fault(url, text))
    path = url.raw_path.partition(b"?")[0].partition(b"/.well-known/")[0]
    return url.copy_with(raw_path=path or b"/", fragment=None)


def _describe_fault(url: httpx.URL, text: str) -> str:
    """Return the end of the message for an invalid *url*; "" if there is nothing to add."""
    if any(character.isspace() for character in text):
        return "; this has a space or a line break"
    host = url.raw_host.decode("ascii")
    if not host or not url.scheme:
        return ""
    if url.scheme not in ("http", "https"):
        return f", not {url.scheme}://{host}"
    if url.port is not None and not 0 < url.port < 65536:
        return "; ports are from 1 to 65535"
    return "; this host is not valid"


def lacks_scheme(text: str) -> bool:
    """Return whether *text* lacks only `http://` to be an agent's URL."""
    # httpx parses the host of "localhost:8000" as a scheme, so look at the text.
    if "://" in text or text.startswith(("http:", "https:")) or not text.isprintable():
        return False
    try:
        return is_agent_url(httpx.URL(f"http://{text}")) and " " not in text
    except (httpx.InvalidURL, UnicodeError):
        return False
