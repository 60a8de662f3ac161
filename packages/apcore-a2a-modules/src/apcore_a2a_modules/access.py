"""Who may call which skill, by the executor's own access rules (FR-AGC-004)."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import isawaitable, signature
from typing import Any, NamedTuple, TypeAlias

from anyio import CapacityLimiter, to_thread
from apcore import Context
from apcore_a2a_core import clean

logger = logging.getLogger("apcore_a2a.access_rules")


class Verdict(NamedTuple):
    """What the rules say of a call."""

    allowed: bool
    needs_approval: bool = False


Ask: TypeAlias = Callable[[str, Any], Awaitable[Verdict]]


class Access:
    """Asks an executor's rules, and calls nothing.

    apcore's ACL is asked where it can be found; else, and for executors of another make,
    `Executor.validate` is.

    Args:
        executor: An apcore Executor, or what looks like one.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._turns = CapacityLimiter(1)  # `validate` has one event loop for all threads

    async def verdicts(self, skill_ids: Iterable[str], identity: Any) -> dict[str, Verdict]:
        """The verdict on each skill for *identity*; None for somebody unknown.

        Where the rules can't be asked, nobody may call.
        """
        ask = self._asker()
        if ask is None:
            return dict.fromkeys(skill_ids, Verdict(True))
        return {skill_id: await _asked(ask, skill_id, identity) for skill_id in skill_ids}

    def _asker(self) -> Ask | None:
        """What to ask; None when there are no rules."""
        steps = getattr(getattr(self._executor, "current_strategy", None), "steps", ())
        gates: list[Any] = [step for step in steps if step.name == "acl_check"]
        if len(gates) != 1 or not hasattr(gates[0], "acl"):
            return self._ask_validate
        return None if gates[0].acl is None else partial(_ask_rules, gates[0].acl)

    async def _ask_validate(self, skill_id: str, identity: Any) -> Verdict:
        validate = self._executor.validate
        with_context = "context" in signature(validate).parameters
        arguments: list[Any] = [skill_id, {}, *([_context(identity)] if with_context else [])]
        result: Any = await to_thread.run_sync(validate, *arguments, limiter=self._turns)
        checks: list[Any] = list(getattr(result, "checks", ()))
        denied = any(check.check == "acl" and not check.passed for check in checks)
        return Verdict(not denied, bool(getattr(result, "requires_approval", False)))


async def _asked(ask: Ask, skill_id: str, identity: Any) -> Verdict:
    try:
        return await ask(skill_id, identity)
    except Exception:  # users' rules and executors raise what they like
        logger.exception("Can't tell who may call %s", clean(skill_id))
        return Verdict(False)


async def _ask_rules(acl: Any, skill_id: str, identity: Any) -> Verdict:
    """The ACL's verdict on a call from outside; an older one knows of no approval."""
    names = ("async_check_access", "check_access", "async_check", "check")
    check = next(getattr(acl, name) for name in names if hasattr(acl, name))
    decision = check(None, skill_id, _context(identity))
    decision = await decision if isawaitable(decision) else decision
    if isinstance(decision, bool):
        return Verdict(decision)
    return Verdict(decision.access == "allow", bool(decision.approval_required))


def _context(identity: Any) -> Any:
    factory: Any = Context
    return factory.create(identity=identity)
