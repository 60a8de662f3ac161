"""Configuration of all tests."""

import signal
import ssl
import sys
import threading
from collections.abc import Iterator
from functools import cache, wraps
from typing import Any, cast

import certifi
import pytest

pytest_plugins = ["tests.rotating"]

# Shells start background processes with SIGINT ignored, which their children inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

create_default_context = ssl.create_default_context


@cache
def _default_context() -> ssl.SSLContext:
    return create_default_context(cafile=certifi.where())


@wraps(create_default_context)
def _create_default_context(*args: Any, **options: Any) -> ssl.SSLContext:
    """Share one TLS context between all HTTP clients with the default certificates.

    Loading all the certificates takes longer than most tests.
    """
    if not args and options == {"cafile": certifi.where()}:
        return _default_context()
    return create_default_context(*args, **options)


ssl.create_default_context = _create_default_context


@pytest.fixture
def without_coverage() -> Iterator[None]:
    """Run a test and the threads that it starts without the tracing of coverage, which is slow."""
    traces, thread_traces = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(cast("Any", None))  # typeshed does not allow None, unlike the documentation
    yield
    threading.settrace(cast("Any", thread_traces))
    sys.settrace(traces)


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Let threads that compute release the GIL sooner, so that the event loop waits less for it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 50)
    yield
    sys.setswitchinterval(interval)
