"""An A2A server for apcore modules: protocol 1.0 and 0.3 on one port.

Names are loaded on first use, so that a part of the server, such as `apcore_a2a_server.store`, can
be imported without the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["InMemoryTaskStore", "Limits", "async_serve", "create_app", "serve"]

if TYPE_CHECKING:
    from .app.app import async_serve, create_app
    from .app.options import Limits
    from .app.serve import serve
    from .store import InMemoryTaskStore
else:
    _MODULES = {
        "InMemoryTaskStore": ".store",
        "Limits": ".app.options",
        "async_serve": ".app.app",
        "create_app": ".app.app",
        "serve": ".app.serve",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
