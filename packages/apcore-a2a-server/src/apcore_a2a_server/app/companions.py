"""The companions of an agent: objects that run with it, such as connections to remote agents."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from apcore_a2a_core import Companion, Registry, missing_methods

from apcore_a2a_server.fields import OptionError

from .figures import POSITIONS

READY, NOT_READY = "ready", "not ready"


class Companions:
    """The companions of an agent.

    Args:
        companions: The objects.
    """

    def __init__(self, companions: Sequence[Companion]) -> None:
        self._companions = companions

    async def start(self, registry: Registry) -> None:
        """Start all of them at the same time; if any failed, raise an error when all are done."""
        await _finish(companion.start(registry) for companion in self._companions)

    async def aclose(self) -> None:
        """Close all of them at the same time; if any failed, raise an error when all are done."""
        await _finish(companion.aclose() for companion in self._companions)

    def health(self) -> dict[str, Any]:
        """Return the JSON member `companions` of the health check; empty if there are none."""
        companions = self._companions
        not_ready = {companion.name for companion in companions if not companion.is_ready()}
        names = [companion.name for companion in companions]
        states = {name: NOT_READY if name in not_ready else READY for name in names}
        return {"companions": states} if states else {}

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return functions that read the current figures, by metric name."""
        if not self._companions:
            return {}
        gauges: dict[str, Callable[[], float]] = {
            "companions": lambda: len(self._companions),
            "companions_not_ready": lambda: sum(
                not companion.is_ready() for companion in self._companions
            ),
        }
        return gauges | {name: partial(self._sum, name) for name in figure_names(self._companions)}

    def routes(self) -> Mapping[str, Any]:
        """Return the ASGI applications of the companions, by path.

        Raises:
            OptionError: Two companions have different applications at the same path.
        """
        routes: dict[str, Any] = {}
        for companion in self._companions:
            get_routes: Any = getattr(companion, "routes", dict[str, Any])
            applications: Mapping[str, Any] = get_routes()
            for path, app in applications.items():
                if routes.setdefault(path, app) is not app:
                    raise OptionError("companions", f"has two applications at {path}")
        return routes

    def public_keys(self) -> list[Mapping[str, Any]]:
        """Return the public keys of the companions as JSON Web Keys."""
        key_functions: list[Any] = [
            getattr(companion, "public_keys", list[Any]) for companion in self._companions
        ]
        return [key for get_keys in key_functions for key in get_keys()]

    def _sum(self, name: str) -> float:
        return sum((Counter(companion.figures())[name] for companion in self._companions), 0.0)


async def _finish(calls: Iterable[Awaitable[None]]) -> None:
    """Wait until all calls have ended; then raise the error of the first of *calls* that failed.

    It waits for all, because after an error the caller closes what the other calls may still use.
    """
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def figure_names(companions: Sequence[Companion]) -> list[str]:
    """Return the names of the figures of companions.

    Raises:
        TypeError: An object is not a companion, because it lacks methods.
        OptionError: A figure has the same name as one of the server's own.
    """
    for companion in companions:
        if missing := missing_methods(companion, Companion):
            kind = type(companion).__name__
            raise TypeError(f"companions takes Companions: {kind} lacks {', '.join(missing)}")
    names = sorted({name for companion in companions for name in companion.figures()})
    for name in names:
        if name in POSITIONS:
            raise OptionError("companions", f"has the figure {name!r}, like the server itself")
    return names
