"""What both bindings are to ASGI."""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from apcore_a2a_core import ErrorMapper
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.clients.connection import HungUpError
from apcore_a2a_server.handler import Handler

from .exchange import Asked, connection_of, headers_of, read_body


class Endpoint(ABC):
    """Reads a request's body and holds its connection; a binding answers it.

    Args:
        handler: Does what is asked for.
        mapper: From exceptions to errors.
        max_body: The largest body, in bytes.
    """

    def __init__(self, handler: Handler, mapper: ErrorMapper, *, max_body: int) -> None:
        self.handler = handler
        self.mapper = mapper
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        found = await self.find(scope, send)
        if found is None:
            return
        body = await read_body(receive, send, self._max_body)
        if body is not None:
            with connection_of(scope, receive) as connection, suppress(HungUpError):
                asked = Asked(scope, headers_of(scope), body, connection)
                await self.answer(found, asked, send)

    @abstractmethod
    async def find(self, scope: Scope, send: Send) -> Any:
        """What is asked for, by its verb and its path; None when it has been refused."""

    @abstractmethod
    async def answer(self, found: Any, asked: Asked, send: Send) -> None:
        """Answer what was found.

        Raises:
            HungUpError: The client has gone.
        """
