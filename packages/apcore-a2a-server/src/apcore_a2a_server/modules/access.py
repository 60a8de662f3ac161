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

BUILT_IN = ("apcore.builtin_steps", "BuiltinACLCheck")
"""apcore's own step, whose rules can be asked; a user's may do anything."""


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

        A call without arguments is asked about. Where the rules can't be asked, nobody may call.
        """
        ask = self._asker()
        return {skill_id: await self._verdict(ask, skill_id, identity) for skill_id in skill_ids}

    async def _verdict(self, ask: Ask | None, skill_id: str, identity: Any) -> Verdict:
        try:
            if self._is_switched_off(skill_id):
                return Verdict(False)
            verdict = Verdict(True) if ask is None else await ask(skill_id, identity)
            return verdict._replace(needs_approval=verdict[1] or self._is_gated(skill_id))
        except Exception:  # users' rules and executors raise what they like
            logger.exception("Can't tell who may call %s", clean(skill_id))
            return Verdict(False)

    def _asker(self) -> Ask | None:
        """What to ask; None when there are no rules."""
        strategy = getattr(self._executor, "current_strategy", None)
        if strategy is None:
            rules = getattr(self._executor, "_acl", self)  # apcore before 0.16 has them there
            return self._ask_validate if rules is self else _asking(rules)
        gate = self._step("acl_check")
        if gate is None or (type(gate).__module__, type(gate).__name__) == BUILT_IN:
            return _asking(getattr(gate, "_acl", None))
        return self._ask_validate if getattr(gate, "pure", False) else _deny

    def _step(self, name: str) -> Any:
        strategy = getattr(self._executor, "current_strategy", None)
        steps = getattr(strategy, "steps", ())
        return next((step for step in steps if step.name == name), None)

    def _is_switched_off(self, skill_id: str) -> bool:
        """Whether an operator has disabled the module; apcore refuses calls of it."""
        toggles = getattr(self._step("module_lookup"), "_toggle_state", None)
        return toggles is not None and bool(toggles.is_disabled(skill_id))

    def _is_gated(self, skill_id: str) -> bool:
        """Whether the executor's policy has calls of the module approved."""
        policy = getattr(self._step("approval_gate"), "policy", None)
        if policy is None:
            return False
        annotations = getattr(self._executor.registry.get(skill_id), "annotations", None)
        return bool(policy.resolve(skill_id, annotations).needs_approval)

    async def _ask_validate(self, skill_id: str, identity: Any) -> Verdict:
        validate = self._executor.validate
        with_context = "context" in signature(validate).parameters
        arguments: list[Any] = [skill_id, {}, *([_context(identity)] if with_context else [])]
        result: Any = await to_thread.run_sync(validate, *arguments, limiter=self._turns)
        checks: list[Any] = list(getattr(result, "checks", ()))
        denied = any(check.check == "acl" and not check.passed for check in checks)
        return Verdict(not denied, bool(getattr(result, "requires_approval", False)))


def _asking(acl: Any) -> Ask | None:
    return None if acl is None else partial(_ask_rules, acl)


async def _deny(skill_id: str, identity: Any) -> Verdict:
    """A gate of the user's own that can't be asked without a call."""
    return Verdict(False)


async def _ask_rules(acl: Any, skill_id: str, identity: Any) -> Verdict:
    """The ACL's verdict on a call from outside; an older one knows of no approval."""
    names = ("async_check_access", "check_access", "async_check", "check")
    check = next(getattr(acl, name) for name in names if hasattr(acl, name))
    context = _context(identity)
    if hasattr(context, "child"):
        context = context.child(skill_id)  # as calls are, when they meet the rules
    decision = check(None, skill_id, context, **_without_arguments(check))
    decision = await decision if isawaitable(decision) else decision
    if not hasattr(decision, "access"):
        return Verdict(bool(decision))
    return Verdict(decision.access == "allow", bool(decision.approval_required))


def _without_arguments(check: Callable[..., Any]) -> dict[str, Any]:
    """How newer rules are told that there are no arguments."""
    if "projection" not in signature(check).parameters:
        return {}
    from apcore.context import GovernanceProjection

    return {"projection": GovernanceProjection.of({})}


def _context(identity: Any) -> Any:
    factory: Any = Context
    return factory.create(identity=identity)
