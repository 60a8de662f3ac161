"""Calls of a module's `on_abandoned`, made when a paused task ends without another run.

While a task is paused, its module may keep something open: a task of another agent, or a session.
The replica whose change ended the task calls the method, at most once for each pause: if that
replica is killed first, the method is never called.
"""

import asyncio
import inspect
from typing import Any

from apcore import CancelToken
from apcore_a2a_core.data import Message

from apcore_a2a_server.modules.conversation import Conversation, create_context
from apcore_a2a_server.modules.skills import time_limit

from .pauses import Pause
from .setup import Setup


async def call_on_abandoned(setup: Setup, reply_to: Message, pause: Pause, principal: str) -> None:
    """Call `on_abandoned` of the module of an ended task, if the module has that method.

    Args:
        setup: The dependencies of runs.
        reply_to: A message with the ids of the task and its context.
        pause: The pause in which the task has ended.
        principal: The principal of the task; empty if anonymous.
    """
    get_module: Any = getattr(setup.skills.registry, "get", None)
    module = get_module(pause.skill_id) if get_module is not None and pause.skill_id else None
    on_abandoned: Any = getattr(module, "on_abandoned", None)
    if on_abandoned is None:
        return
    seconds = min(time_limit(module) or float("inf"), setup.execution_timeout)
    conversation = Conversation(
        reply_to.task_id,
        reply_to.context_id,
        parts=pause.parts,
        state=pause.state,
        principal=principal,
    )
    context = create_context(
        token=CancelToken(), seconds=seconds, trace=pause.span.child(), conversation=conversation
    )
    try:
        async with asyncio.timeout(seconds):
            if inspect.iscoroutinefunction(on_abandoned):
                await on_abandoned(pause.inputs, context)
            else:
                await setup.threads.run(on_abandoned, pause.inputs, context, client="")
    except (SystemExit, KeyboardInterrupt) as error:  # these would end the server's event loop
        raise RuntimeError(f"The module raised {type(error).__name__}") from None
