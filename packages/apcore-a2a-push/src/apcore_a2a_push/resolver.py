"""Names to addresses, without holding up the event loop or the end of the process."""

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial

SECONDS = 5.0
"""How long a name may take."""
PLACES = 32
"""How many names are looked up at a time; those that take longer keep their place."""


class Resolver:
    """The system's own resolver, each look-up in a daemon thread.

    The threads that `asyncio` has for it are few, and shared with everything else: names that are
    slow on purpose would hold up others' work, and a process that ends would wait for them.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of *host*, in the order in which they should be tried.

        Raises:
            OSError: There are none, or not in time.
        """
        async with asyncio.timeout(SECONDS):  # TimeoutError is an OSError
            await self._places.acquire()
            loop = asyncio.get_running_loop()
            found: asyncio.Future[list[str]] = loop.create_future()
            found.add_done_callback(_look_at)
            work = partial(_work, loop, found, self._places, host, port)
            try:
                threading.Thread(target=work, name="resolver", daemon=True).start()
            except RuntimeError as error:  # the system has no more threads
                self._places.release()
                raise OSError(str(error)) from None
            return await asyncio.shield(found)


def _work(
    loop: asyncio.AbstractEventLoop,
    found: "asyncio.Future[list[str]]",
    places: asyncio.Semaphore,
    host: str,
    port: int,
) -> None:
    answer: list[str] | OSError
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer = list(dict.fromkeys(str(info[4][0]) for info in infos))
    except (OSError, UnicodeError) as error:  # a label that no name can have
        answer = error if isinstance(error, OSError) else OSError(str(error))

    def tell() -> None:
        places.release()
        if isinstance(answer, OSError):
            found.set_exception(answer)
        else:
            found.set_result(answer)

    with suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(tell)


def _look_at(found: "asyncio.Future[list[str]]") -> None:
    if not found.cancelled():
        found.exception()  # it may be that nobody waits for it any more
