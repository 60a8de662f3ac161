"""Names to addresses, without holding up the event loop or the end of the process."""

import asyncio
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from weakref import WeakValueDictionary

from .errors import BusyError

SECONDS = 5.0
"""How long a name may take."""
PLACES = 64
"""How many names are looked up at a time; those that take longer keep their place."""
PER_OWNER = 8
"""How many for one principal."""

principal: ContextVar[str] = ContextVar("apcore_a2a_push_principal", default="")
"""For whom names are looked up, so that slow ones hold up nobody else."""


class Resolver:
    """The system's own resolver, each look-up in a daemon thread.

    The threads that `asyncio` has for it are few, and shared with everything else: names that are
    slow on purpose would hold up others' work, and a process that ends would wait for them.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of *host*, in the order in which they should be tried.

        Raises:
            BusyError: Too many names are looked up already.
            OSError: There are none, or not in time.
        """
        share = self._shares.setdefault(principal.get(), asyncio.Semaphore(PER_OWNER))
        try:
            async with asyncio.timeout(SECONDS):
                await _acquired(share, self._places)
        except TimeoutError:
            raise BusyError from None
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()
        found.add_done_callback(_look_at)
        work = partial(_work, loop, found, (share, self._places), host, port)
        try:
            threading.Thread(target=work, name="resolver", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            _release((share, self._places))
            raise BusyError from None
        async with asyncio.timeout(SECONDS):  # TimeoutError is an OSError
            return await asyncio.shield(found)


async def _acquired(*places: asyncio.Semaphore) -> None:
    """Take a place in each, or in none."""
    taken: list[asyncio.Semaphore] = []
    try:
        for place in places:
            await place.acquire()
            taken.append(place)
    except BaseException:  # canceled, most of all
        _release(taken)
        raise


def _release(places: Iterable[asyncio.Semaphore]) -> None:
    for place in places:
        place.release()


def _work(
    loop: asyncio.AbstractEventLoop,
    found: "asyncio.Future[list[str]]",
    places: Iterable[asyncio.Semaphore],
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
        _release(places)
        if isinstance(answer, OSError):
            found.set_exception(answer)
        else:
            found.set_result(answer)

    with suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(tell)


def _look_at(found: "asyncio.Future[list[str]]") -> None:
    if not found.cancelled():
        found.exception()  # it may be that nobody waits for it any more
