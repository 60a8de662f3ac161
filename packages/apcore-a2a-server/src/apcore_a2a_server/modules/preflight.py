"""Asking `Executor.validate` whether a call would be refused.

Needed where the pipeline can't be asked on the way: executors without steps (apcore
before 0.16, duck-typed ones), and calls that wait for approval, which apcore asks for
before it validates.
"""

import inspect
from typing import Any

from anyio import CapacityLimiter, to_thread
from apcore.errors import (
    ACLDeniedError,
    InvalidInputError,
    ModuleNotFoundError,
    SchemaValidationError,
)

from .access import Access


async def preflight(
    executor: Any, skill_id: str, inputs: dict[str, Any], context: Any, turns: CapacityLimiter
) -> None:
    """Raise what would refuse the call; run no module code on the event loop.

    It is done one at a time, for which *turns* is: apcore's `validate` has one event loop of
    its own for all threads.

    Raises:
        SchemaValidationError: The input does not fit the schema.
        ACLDeniedError: The caller may not call the module.
        ModuleNotFoundError: There is no such module.
        InvalidInputError: The module's own preflight refuses.
    """
    if not hasattr(executor, "current_strategy"):  # its `validate` may know of no rules
        verdicts = await Access(executor).verdicts([skill_id], context.identity)
        if not verdicts[skill_id].allowed:
            raise ACLDeniedError(None, skill_id)
    arguments: list[Any] = [skill_id, inputs]
    if "context" in inspect.signature(executor.validate).parameters:
        arguments.append(context)
    result: Any = await to_thread.run_sync(executor.validate, *arguments, limiter=turns)
    if result is not None and not getattr(result, "valid", True):
        checks: list[Any] = [check for check in getattr(result, "checks", ()) if not check.passed]
        raise _refusal(checks[0].check if checks else "schema", result.errors, skill_id)


def _refusal(check: str, errors: list[dict[str, Any]], skill_id: str) -> Exception:
    if check == "acl":
        return ACLDeniedError(None, skill_id)
    if check in ("module_lookup", "module_id"):
        return ModuleNotFoundError(skill_id)
    if check == "schema":
        found = [
            item
            for error in errors
            for item in error.get("errors") or error.get("details", {}).get("errors", [error])
        ]
        return SchemaValidationError("Input validation failed", errors=found)
    return InvalidInputError("The module refuses it")
