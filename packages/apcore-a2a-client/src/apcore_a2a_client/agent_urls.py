"""URLs of agents: validation, comparison, and text without secrets."""

import httpx


def is_agent_url(url: httpx.URL) -> bool:
    """Return whether an agent can be at *url*: http or https, a valid host and port."""
    try:
        # Sockets encode the host like this, and refuse labels that are too long.
        url.raw_host.decode("ascii").encode("idna")
        has_host = bool(url.host)
    except UnicodeError:
        return False
    valid_port = url.port is None or 0 < url.port < 65536
    return url.scheme in ("http", "https") and has_host and valid_port and not url.userinfo


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return the origin of *url*, to which credentials belong (RFC 6454)."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def path_of(url: httpx.URL) -> bytes:
    """Return the path of *url*, without a trailing slash."""
    return url.raw_path.partition(b"?")[0].rstrip(b"/")


def redacted(url: httpx.URL) -> str:
    """Return *url* without the parts that can be secret: user, password, query and fragment."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def agent_url(text: str) -> httpx.URL:
    """Return the URL in *text*, without the path of the card if it has one (FR-CLI-001.2).

    Raises:
        ValueError: It is not an http or https URL; the message shows no password.
    """
    expected = "The agent's URL must be http or https with a host, such as http://127.0.0.1:8000"
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise ValueError(f"{expected}; this is not a URL") from None
    if url.userinfo:
        raise ValueError("The agent's URL has credentials: pass auth= (as a command: --auth)")
    if url.query:
        raise ValueError("The agent's URL takes no query: use auth= or headers= for its parameters")
    if lacks_scheme(text):
        given = text.partition("#")[0]
        raise ValueError(f"The agent's URL needs a scheme: got {given!r}, write http://{given}")
    if not is_agent_url(url) or any(character.isspace() for character in text):
        given = f", not {url.scheme}://{url.host}" if url.scheme and url.host else ""
        raise ValueError(expected + given)
    path = url.raw_path.partition(b"?")[0].partition(b"/.well-known/")[0]
    return url.copy_with(raw_path=path or b"/", fragment=None)


def lacks_scheme(text: str) -> bool:
    """Return whether `http://` before *text* makes an agent's URL of it."""
    # httpx reads the host of "localhost:8000" as the scheme, so the text decides.
    if "://" in text or text.startswith(("http:", "https:")) or not text.isprintable():
        return False
    try:
        return is_agent_url(httpx.URL(f"http://{text}")) and " " not in text
    except (httpx.InvalidURL, UnicodeError):
        return False
