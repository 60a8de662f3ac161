"""Access checks: which skills a caller may call, without calling them (FR-AGC-004)."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, signature
from typing import Any, NamedTuple, TypeAlias

from apcore import Context
from apcore.errors import (
    ACLDeniedError,
    InvalidInputError,
    ModuleNotFoundError,
    SchemaValidationError,
)
from apcore.pipeline import ExecutionStrategy, Step
from apcore_a2a_core import Executor, Identity, Validation, clean

from .threads import SideThreads

logger = logging.getLogger("apcore_a2a.access_rules")

BUILT_IN = ("apcore.builtin_steps", "BuiltinACLCheck")
"""The Python module and class of apcore's access step; its rules can be checked without a call."""


class AccessVerdict(NamedTuple):
    """The decision of the access rules on a call."""

    allowed: bool
    needs_approval: bool = False


AccessCheck: TypeAlias = Callable[[str, Identity | None], Awaitable[AccessVerdict]]


class Access:
    """Checks of whether an executor would refuse calls, made without calling any module.

    `verdicts` uses the executor's ACL, or `Executor.validate` if the executor has no pipeline or
    has an access step that is not apcore's. If `validate` would skip that step, all calls are
    denied. `preflight` always uses `Executor.validate`.

    Args:
        executor: An apcore Executor, or an object with its methods.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._thread = SideThreads(1)  # apcore's `validate` has one event loop for all threads

    @property
    def is_validating(self) -> bool:
        """Whether a thread is running the executor's `validate`, or is about to."""
        return self._thread.pending > 0

    async def verdicts(
        self, skill_ids: Iterable[str], identity: Identity | None
    ) -> dict[str, AccessVerdict]:
        """Return the verdict on a call of each skill; *identity* is None for an anonymous caller.

        The rules are checked for calls without arguments. If they can't be checked, access is
        denied.
        """
        check = self._access_check()
        return {skill_id: await self._verdict(check, skill_id, identity) for skill_id in skill_ids}

    async def preflight(
        self, skill_id: str, inputs: dict[str, Any], context: "Context[Any]", *, client: str = ""
    ) -> None:
        """Raise the error with which the call would be refused, if any.

        `validate` runs in a thread, since it may call the module's own preflight. The check is
        needed where the pipeline can't refuse the call before its task is working: for executors
        without our steps, for calls that an answer resumes, and for calls that pause for approval,
        since apcore asks for approval before it validates input.

        Calls are checked one at a time. If a call is canceled during its check, the next calls
        still wait until the check has ended. Clients with waiting calls take turns.

        Raises:
            SchemaValidationError: The input does not match the schema.
            ACLDeniedError: The caller may not call the module.
            ModuleNotFoundError: There is no such module.
            InvalidInputError: The module's own preflight refuses the call.
        """
        validation = await self._validate(skill_id, inputs, context, client)
        if validation is not None and not validation.valid:
            failed_checks = (check.check for check in validation.checks if not check.passed)
            raise _refusal(next(failed_checks, "schema"), validation.errors, skill_id)

    async def _verdict(
        self, check: AccessCheck | None, skill_id: str, identity: Identity | None
    ) -> AccessVerdict:
        try:
            if self._is_disabled(skill_id):
                return AccessVerdict(False)
            verdict = AccessVerdict(True) if check is None else await check(skill_id, identity)
            needs_approval = verdict.needs_approval or self._policy_requires_approval(skill_id)
            return verdict._replace(needs_approval=needs_approval)
        except Exception:  # rules and executors of users may raise anything
            extra = {"event": "access_check_failed"}
            logger.exception("Access check of %s failed", clean(skill_id), extra=extra)
            return AccessVerdict(False)

    def _access_check(self) -> AccessCheck | None:
        """Return the check of the access rules; None if there are no rules."""
        if strategy_of(self._executor) is None:
            return self._check_with_validate
        step = step_of(self._executor, "acl_check")
        if step is None or (type(step).__module__, type(step).__name__) == BUILT_IN:
            acl: object = getattr(step, "_acl", None)
            return None if acl is None else partial(_check_acl, acl)
        # `validate` skips steps that are not declared pure. If the user's own access step is one
        # of them, `validate` would allow every call.
        return self._check_with_validate if getattr(step, "pure", False) else _deny

    def _is_disabled(self, skill_id: str) -> bool:
        """Return whether an operator has disabled the module, so that apcore refuses calls."""
        lookup = step_of(self._executor, "module_lookup")
        toggles: Any = getattr(lookup, "_toggle_state", None)
        return toggles is not None and bool(toggles.is_disabled(skill_id))

    def _policy_requires_approval(self, skill_id: str) -> bool:
        """Return whether the executor's policy requires approval for calls of the module."""
        policy: Any = getattr(step_of(self._executor, "approval_gate"), "policy", None)
        if policy is None:
            return False
        registry: Any = self._executor.registry
        annotations = getattr(registry.get(skill_id), "annotations", None)
        return bool(policy.resolve(skill_id, annotations).needs_approval)

    async def _check_with_validate(self, skill_id: str, identity: Identity | None) -> AccessVerdict:
        validation = await self._validate(skill_id, {}, _context(identity))
        checks = () if validation is None else validation.checks
        is_denied = any(check.check == "acl" and not check.passed for check in checks)
        return AccessVerdict(not is_denied, bool(getattr(validation, "requires_approval", False)))

    async def _validate(
        self, skill_id: str, inputs: dict[str, Any], context: "Context[Any]", client: str = ""
    ) -> Validation | None:
        validate = self._executor.validate
        return await self._thread.call(validate, skill_id, inputs, context, client=client)


def strategy_of(executor: Executor) -> ExecutionStrategy | None:
    """Return the executor's pipeline; None if the executor has none."""
    return getattr(executor, "current_strategy", None)


def step_of(executor: Executor, name: str) -> Step | None:
    """Return the pipeline step called *name*; None if the executor has no such step."""
    steps: Sequence[Step] = getattr(strategy_of(executor), "steps", ())
    return next((step for step in steps if step.name == name), None)


async def _deny(skill_id: str, identity: Identity | None) -> AccessVerdict:
    """Deny access, since the user's own access step can't be checked without a call."""
    return AccessVerdict(False)


async def _check_acl(acl: Any, skill_id: str, identity: Identity | None) -> AccessVerdict:
    """Return the ACL's verdict on a call by a client, not by another module.

    Since apcore 0.28, the verdict also says whether the call needs approval.
    """
    names = ("async_check_access", "check_access", "async_check", "check")
    check = next(getattr(acl, name) for name in names if hasattr(acl, name))
    context = _context(identity).child(skill_id)  # the context that the access step of a call gets
    decision = check(None, skill_id, context, **_empty_projection(check))
    decision = await decision if isawaitable(decision) else decision
    if not hasattr(decision, "access"):
        return AccessVerdict(bool(decision))
    return AccessVerdict(decision.access == "allow", bool(decision.approval_required))


def _empty_projection(check: Callable[..., Any]) -> dict[str, Any]:
    """Return the option `projection` for a call without arguments, if *check* has that option."""
    if "projection" not in signature(check).parameters:
        return {}
    from apcore.context import GovernanceProjection  # new in apcore 0.28

    return {"projection": GovernanceProjection.of({})}


def _context(identity: Identity | None) -> "Context[Any]":
    factory: Any = Context  # its type parameter for `services` can't be inferred
    context: Context[Any] = factory.create(identity=identity)
    return context


def _refusal(failed_check: str, errors: Sequence[Mapping[str, Any]], skill_id: str) -> Exception:
    if failed_check == "acl":
        return ACLDeniedError(None, skill_id)
    if failed_check in ("module_lookup", "module_id"):
        return ModuleNotFoundError(skill_id)
    if failed_check == "schema":
        violations = [
            item
            for error in errors
            for item in error.get("errors") or error.get("details", {}).get("errors", [error])
        ]
        return SchemaValidationError("Input validation failed", errors=violations)
    return InvalidInputError("The module's preflight refuses the call")
