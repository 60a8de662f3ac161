"""What holds for all tests."""

import signal
import ssl
from functools import cache, wraps
from typing import Any

import certifi

pytest_plugins = ["tests.rotating"]

# A shell that begins this process in the background has it ignore SIGINT, and all that it begins.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

create_default_context = ssl.create_default_context


@cache
def _usual() -> ssl.SSLContext:
    return create_default_context(cafile=certifi.where())


@wraps(create_default_context)
def _create_default_context(*args: Any, **options: Any) -> ssl.SSLContext:
    """One context for all HTTP clients that ask for nothing else.

    To read the certificates of all authorities takes longer than most tests do.
    """
    if not args and options == {"cafile": certifi.where()}:
        return _usual()
    return create_default_context(*args, **options)


ssl.create_default_context = _create_default_context
