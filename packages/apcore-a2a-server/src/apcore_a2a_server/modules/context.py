"""The apcore Context that a module is called with."""

import time
from collections.abc import Mapping
from typing import Any, cast

from apcore import Context
from apcore.trace_context import TraceContext

from .conversation import Conversation


def create_context(
    executor: Any,
    *,
    token: Any,
    seconds: float,
    identity: Any = None,
    headers: Mapping[str, str] | None = None,
    conversation: Conversation,
) -> Any:
    """A Context for one call, made in the way that apcore 0.6 and the newest understand.

    Args:
        executor: What calls the module; nested calls go through it.
        token: The call's CancelToken.
        seconds: How long the call and all it calls may take.
        identity: The apcore Identity of the caller.
        headers: The request's; a `traceparent` in it is gone on with (W3C Trace Context).
        conversation: What modules find in `context.services` and `context.data`.
    """
    trace_parent = TraceContext.extract(dict(headers or {}))
    factory = cast("Any", Context)
    context = factory.create(identity=identity, trace_parent=trace_parent, data=conversation.data())
    context.services = conversation
    context.cancel_token = token
    context.global_deadline = time.time() + seconds
    if not hasattr(context, "bind_executor"):
        context.executor = executor
    return context
