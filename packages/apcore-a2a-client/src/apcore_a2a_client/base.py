"""The base class of `A2AClient` and `SyncA2AClient`, and a helper for their methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from types import FunctionType
from typing import Generic, ParamSpec, TypeVar

import httpx

from .agent_urls import agent_url, origins
from .auth import Credentials, has_credentials, httpx_auth
from .destinations import DestinationCheck, DestinationGuard
from .discovery import VERSIONS, CardCheck, Discovery
from .exchange import Exchange
from .headers import Headers, HeaderSource, check_headers
from .methods import Operations
from .oauth import ClientCredentials

P = ParamSpec("P")
T = TypeVar("T")
HttpClient = TypeVar("HttpClient", httpx.Client, httpx.AsyncClient)
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""Connections are not limited: each concurrent call or stream needs one."""
MAX_TIMEOUT = 10**9
"""Seconds; sockets refuse much longer timeouts."""


class Client(Generic[HttpClient]):
    """Base class of both clients; `A2AClient` documents the arguments."""

    _http_type: type[HttpClient]
    _is_async = False

    def __init__(
        self,
        url: str,
        *,
        auth: Credentials | None = None,
        timeout: float | None = 30,
        card_ttl: float = 300,
        headers: Headers | HeaderSource | None = None,
        retries: int = 3,
        http_client: HttpClient | None = None,
        protocol: str | None = None,
        max_bytes: int = 64 * 2**20,
        credentials_for: Iterable[str] = (),
        verify_card: CardCheck | None = None,
        check_destination: DestinationCheck | None = None,
    ) -> None:
        if protocol not in (None, *VERSIONS):
            raise ValueError(f"protocol must be one of {', '.join(VERSIONS)}, not {protocol!r}")
        if card_ttl < 0 or retries < 0 or max_bytes < 1:
            raise ValueError("card_ttl and retries must be at least 0, and max_bytes at least 1")
        if timeout is not None and not 0 < timeout <= MAX_TIMEOUT:
            raise ValueError(
                f"timeout must be more than 0 and at most {MAX_TIMEOUT} seconds, not {timeout!r}"
            )
        functions = {"verify_card": verify_card, "check_destination": check_destination}
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function")
        self._owns_http = http_client is None
        self._url, trusted_origins = agent_url(url), origins(credentials_for)
        self._http: HttpClient = http_client or self._http_type(limits=LIMITS)
        exchange = Exchange(
            self._http.build_request,
            auth.for_agent() if isinstance(auth, ClientCredentials) else httpx_auth(auth),
            headers if callable(headers) else check_headers(headers),
            timeout,
            retries,
            max_bytes,
            partial(has_credentials, self._http),
        )
        discovery = Discovery(
            exchange,
            self._url,
            card_ttl,
            protocol,
            trusted_origins,
            verify_card,
        )
        if check_destination is not None:
            exchange.guard = DestinationGuard(
                check_destination, discovery.trusted_origins, is_async=self._is_async
            )
        self._operations = Operations(discovery)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"


def copy_as_method(operation: Callable[P, T], class_name: str) -> Callable[P, T]:
    """Return a copy of *operation* that is named as a method of *class_name*.

    Python quotes the name in the `TypeError` for wrong arguments, and callers do not know
    `Operations`.
    """
    assert isinstance(operation, FunctionType)
    copy = FunctionType(operation.__code__, operation.__globals__, argdefs=operation.__defaults__)
    copy.__kwdefaults__ = operation.__kwdefaults__
    update_wrapper(copy, operation).__qualname__ = f"{class_name}.{operation.__name__}"
    return copy
