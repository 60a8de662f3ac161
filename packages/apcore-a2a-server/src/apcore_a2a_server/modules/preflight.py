"""Asking `Executor.validate` whether a call would be refused.

Needed where the pipeline can't be asked on the way: executors without steps (apcore
before 0.16, duck-typed ones), and calls that wait for approval, which apcore asks for
before it validates.
"""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from a2a.utils.errors import InvalidParamsError, MethodNotFoundError, TaskNotFoundError

from apcore_a2a_server.decode import invalid


async def preflight(executor: Any, skill_id: str, inputs: dict[str, Any], context: Any) -> None:
    """Raise what would refuse the call; run no module code on the event loop.

    Raises:
        InvalidParamsError: The input does not fit the schema.
        TaskNotFoundError: The ACL denies the call (FR-ERR-003).
        MethodNotFoundError: There is no such module.
    """
    arguments = [skill_id, inputs]
    if "context" in inspect.signature(executor.validate).parameters:
        arguments.append(context)
    result = await asyncio.to_thread(executor.validate, *arguments)
    if result is None or getattr(result, "valid", True):
        return
    for check in getattr(result, "checks", ()):
        if not check.passed:
            raise _refusal(check.check, check.error or {}, skill_id)
    raise _invalid_input({"errors": result.errors})


def _refusal(check: str, error: Mapping[str, Any], skill_id: str) -> Exception:
    if check == "acl":
        return TaskNotFoundError()
    if check in ("module_lookup", "module_id"):
        data = {"type": "ModuleNotFoundError"}
        return MethodNotFoundError(f"Skill not found: {skill_id}", data=data)
    if check == "schema":
        return _invalid_input(error)
    return invalid("message", "was refused by the module")


def _invalid_input(error: Mapping[str, Any]) -> InvalidParamsError:
    found = error.get("errors") or error.get("details", {}).get("errors") or []
    errors = [
        {
            "field": str(item.get("path") or item.get("field") or "").strip("/").replace("/", "."),
            "code": str(item.get("keyword") or item.get("code") or "invalid"),
            "message": str(item.get("message", "")),
        }
        for item in found
        if isinstance(item, Mapping)
    ]
    return InvalidParamsError(data={"type": "SchemaValidationError", "errors": errors})
