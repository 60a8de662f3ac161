"""Access: which skills a caller may call, and whether a call would be refused (FR-AGC-004)."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, signature
from typing import Any, NamedTuple, TypeAlias

from anyio import CapacityLimiter, to_thread
from apcore import Context
from apcore.errors import (
    ACLDeniedError,
    InvalidInputError,
    ModuleNotFoundError,
    SchemaValidationError,
)
from apcore.pipeline import ExecutionStrategy, Step
from apcore_a2a_core import Executor, Identity, Validation, clean

logger = logging.getLogger("apcore_a2a.access_rules")

BUILT_IN = ("apcore.builtin_steps", "BuiltinACLCheck")
"""apcore's own step, whose rules can be asked; a user's may do anything."""


class Verdict(NamedTuple):
    """The verdict of the access rules on a call."""

    allowed: bool
    needs_approval: bool = False


Ask: TypeAlias = Callable[[str, Identity | None], Awaitable[Verdict]]


class Access:
    """Asks an executor whether calls would be refused, and calls nothing.

    Its access rules are asked where they are an apcore ACL; else `Executor.validate` is.

    Args:
        executor: An apcore Executor, or what looks like one.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._turns = CapacityLimiter(1)  # apcore's `validate` has one event loop for all threads

    @property
    def is_asking(self) -> bool:
        """Whether a thread is in the executor's `validate`."""
        return self._turns.borrowed_tokens > 0

    async def verdicts(
        self, skill_ids: Iterable[str], identity: Identity | None
    ) -> dict[str, Verdict]:
        """Return the verdict on a call of each skill by *identity*; None is an unknown caller.

        A call without arguments is asked about. Rules that cannot be asked allow nothing.
        """
        ask = self._asker()
        return {skill_id: await self._verdict(ask, skill_id, identity) for skill_id in skill_ids}

    async def preflight(
        self, skill_id: str, inputs: dict[str, Any], context: "Context[Any]"
    ) -> None:
        """Raise what would refuse the call; run no module code on the event loop.

        Needed where the pipeline cannot refuse the call in passing: executors without steps,
        and calls that pause for approval, which apcore asks for before it validates.

        Raises:
            SchemaValidationError: The input does not fit the schema.
            ACLDeniedError: The caller may not call the module.
            ModuleNotFoundError: There is no such module.
            InvalidInputError: The module's own preflight refuses.
        """
        found = await self._validate(skill_id, inputs, context)
        if found is not None and not found.valid:
            failed = next((check.check for check in found.checks if not check.passed), "schema")
            raise _refusal(failed, found.errors, skill_id)

    async def _verdict(self, ask: Ask | None, skill_id: str, identity: Identity | None) -> Verdict:
        try:
            if self._is_switched_off(skill_id):
                return Verdict(False)
            verdict = Verdict(True) if ask is None else await ask(skill_id, identity)
            return verdict._replace(needs_approval=verdict[1] or self._is_gated(skill_id))
        except Exception:  # users' rules and executors raise what they like
            logger.exception("Can't tell who may call %s", clean(skill_id))
            return Verdict(False)

    def _asker(self) -> Ask | None:
        """The access rules; None when there are none."""
        if strategy_of(self._executor) is None:
            return self._ask_validate
        gate = step_of(self._executor, "acl_check")
        if gate is None or (type(gate).__module__, type(gate).__name__) == BUILT_IN:
            acl: object = getattr(gate, "_acl", None)
            return None if acl is None else partial(_ask_rules, acl)
        return self._ask_validate if getattr(gate, "pure", False) else _deny

    def _is_switched_off(self, skill_id: str) -> bool:
        """Whether an operator has disabled the module; apcore refuses calls of it."""
        lookup = step_of(self._executor, "module_lookup")
        toggles: Any = getattr(lookup, "_toggle_state", None)
        return toggles is not None and bool(toggles.is_disabled(skill_id))

    def _is_gated(self, skill_id: str) -> bool:
        """Whether the executor's policy has calls of the module approved."""
        policy: Any = getattr(step_of(self._executor, "approval_gate"), "policy", None)
        if policy is None:
            return False
        registry: Any = self._executor.registry
        annotations = getattr(registry.get(skill_id), "annotations", None)
        return bool(policy.resolve(skill_id, annotations).needs_approval)

    async def _ask_validate(self, skill_id: str, identity: Identity | None) -> Verdict:
        found = await self._validate(skill_id, {}, _context(identity))
        checks = () if found is None else found.checks
        denied = any(check.check == "acl" and not check.passed for check in checks)
        return Verdict(not denied, bool(getattr(found, "requires_approval", False)))

    async def _validate(
        self, skill_id: str, inputs: dict[str, Any], context: "Context[Any]"
    ) -> Validation | None:
        validate = self._executor.validate
        return await to_thread.run_sync(validate, skill_id, inputs, context, limiter=self._turns)


def strategy_of(executor: Executor) -> ExecutionStrategy | None:
    """Return the executor's pipeline; None for one of another make than apcore's."""
    return getattr(executor, "current_strategy", None)


def step_of(executor: Executor, name: str) -> Step | None:
    """Return the step of the executor's pipeline that has this name."""
    steps: Sequence[Step] = getattr(strategy_of(executor), "steps", ())
    return next((step for step in steps if step.name == name), None)


async def _deny(skill_id: str, identity: Identity | None) -> Verdict:
    """A gate of the user's own that can't be asked without a call."""
    return Verdict(False)


async def _ask_rules(acl: Any, skill_id: str, identity: Identity | None) -> Verdict:
    """The ACL's verdict on a call from outside; apcore's knows of approval since 0.28."""
    names = ("async_check_access", "check_access", "async_check", "check")
    check = next(getattr(acl, name) for name in names if hasattr(acl, name))
    context = _context(identity).child(skill_id)  # as calls are, when they meet the rules
    decision = check(None, skill_id, context, **_without_arguments(check))
    decision = await decision if isawaitable(decision) else decision
    if not hasattr(decision, "access"):
        return Verdict(bool(decision))
    return Verdict(decision.access == "allow", bool(decision.approval_required))


def _without_arguments(check: Callable[..., Any]) -> dict[str, Any]:
    """How newer rules are told that there are no arguments."""
    if "projection" not in signature(check).parameters:
        return {}
    from apcore.context import GovernanceProjection  # since 0.28

    return {"projection": GovernanceProjection.of({})}


def _context(identity: Identity | None) -> "Context[Any]":
    factory: Any = Context  # whose type of `services` is open in apcore
    context: Context[Any] = factory.create(identity=identity)
    return context


def _refusal(check: str, errors: Sequence[Mapping[str, Any]], skill_id: str) -> Exception:
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
