"""An A2A server for apcore modules: protocol 1.0 and 0.3 on one port.

Names resolve on first use, so that `apcore_a2a_server.serving.options` and the like load
without the whole server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["InMemoryTaskStore", "async_serve", "create_app", "serve"]

if TYPE_CHECKING:
    from .serving.app import async_serve, create_app
    from .serving.serve import serve
    from .stores.memory import InMemoryTaskStore
else:
    _HOMES = {
        "InMemoryTaskStore": ".stores.memory",
        "async_serve": ".serving.app",
        "create_app": ".serving.app",
        "serve": ".serving.serve",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
