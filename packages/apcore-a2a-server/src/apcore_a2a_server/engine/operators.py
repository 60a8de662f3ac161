"""Operators and approvers: callers who may see, answer or cancel tasks of other principals.

The audit log records access to these tasks. Streams and responses contain only what the caller may
read.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from apcore_a2a_core import Identity, clean
from apcore_a2a_core.data import Json, Task, TaskStatus, TaskStatusUpdateEvent
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.states import PAUSED
from msgspec.structs import replace

from apcore_a2a_server.modules.tenants import owner_of, principal_and_tenant
from apcore_a2a_server.store import Event, Query
from apcore_a2a_server.store.port import PROGRESS
from apcore_a2a_server.store.subscribers import EventBatches

from .change import is_approval_request
from .clients import Caller
from .pauses import Pause, asks_yes_or_no

Rule: TypeAlias = str | Callable[[Any], bool]
"""A role, or a function that returns whether the rule applies to an identity."""

RESTARTED: Json = {"apcore": {"restarted": True}}
"""Metadata of the event that reports the restart of a task."""

logger = logging.getLogger("apcore_a2a.audit")


def matches(rule: Rule | None, identity: Identity | None) -> bool:
    """Return whether a rule applies to an identity; it never applies to anonymous callers.

    Example:
        ```python
        from apcore import Identity
        from apcore_a2a_server.engine.operators import matches

        ada = Identity("ada", roles=("operator",))
        print(matches("operator", ada), matches(lambda user: user.id == "bob", ada))
        #> True False
        ```
    """
    if rule is None or identity is None:
        return False
    return rule in (identity.roles or ()) if isinstance(rule, str) else rule(identity) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRules:
    """The rules for access to tasks of other principals; by default, there are no rules.

    Attributes:
        operators: The rule for callers who may list, read, answer and cancel the tasks of all
            principals, but not approve or reject calls.
        approvers: The rule for callers who approve or reject the calls in tasks of other
            principals; None if each principal decides about the calls in its own tasks.
        read_content: Whether operators also read inputs, messages and results.
    """

    operators: Rule | None = None
    approvers: Rule | None = None
    read_content: bool = False

    @property
    def are_set(self) -> bool:
        """Whether any caller may have access to a task of another principal."""
        return self.operators is not None or self.approvers is not None

    def is_operator(self, caller: Caller) -> bool:
        """Return whether a caller is an operator."""
        return matches(self.operators, caller.identity)

    def is_approver(self, caller: Caller) -> bool:
        """Return whether a caller may approve or reject calls in tasks of other principals."""
        return matches(self.approvers, caller.identity)

    def may_see(self, record: TaskRecord, caller: Caller) -> bool:
        """Return whether a caller may know that a task of another owner exists.

        A caller in a tenant sees only tasks of the same tenant.
        """
        principal, tenant = principal_and_tenant(record.owner, record.skill)
        if caller.tenant is not None and (tenant is None or tenant.name != caller.tenant.name):
            return False
        if self.is_operator(caller):
            return True
        is_other = principal != caller.principal
        return is_other and self.is_approver(caller) and waits_for_approval(record)

    def may_operate(self, record: TaskRecord, caller: Caller) -> bool:
        """Return whether a caller may do more than read a task and approve or reject its calls."""
        return record.owner == caller.owner or self.is_operator(caller)

    def widened_query(self, query: Query, caller: Caller) -> Query:
        """Return *query* widened to all owners, or to all owners in the caller's tenant."""
        prefix = "" if caller.tenant is None else owner_of(caller.tenant, "")
        return query.for_all(prefix)

    def view(self, record: TaskRecord, caller: Caller) -> Task:
        """Return a task as a caller may see it; operators and approvers also see its principal."""
        if not (is_foreign(record, caller) or self.is_operator(caller)):
            return record.task
        principal, _ = principal_and_tenant(record.owner, record.skill)
        task, is_of_caller = record.task, not is_foreign(record, caller)
        metadata = {**task.metadata.get("apcore", {}), "principal": principal}
        if is_of_caller or self._reads_content(caller):
            return replace(task, metadata={**task.metadata, "apcore": metadata})
        return Task(
            id=task.id,
            context_id=task.context_id,
            status=self._status(task.status, caller),
            metadata={
                **_members(task.metadata, "skillId"),
                "apcore": _members(metadata, "createdAt", "principal", "decisions", "traceId"),
            },
        )

    def visible_events(
        self, events: EventBatches, record: TaskRecord, caller: Caller
    ) -> EventBatches:
        """Return the events of a task as a caller may see them."""
        return self._visible(events, record, caller) if is_foreign(record, caller) else events

    async def _visible(
        self, events: EventBatches, record: TaskRecord, caller: Caller
    ) -> EventBatches:
        async with aclosing(events):
            async for batch in events:
                payloads = [self._payload(event.payload, record, caller) for event in batch]
                yield [
                    Event(event.version, payload)
                    for event, payload in zip(batch, payloads, strict=True)
                    if payload is not None
                ]

    def check_answer(self, record: TaskRecord, caller: Caller) -> None:
        """Refuse an answer from a caller who may not answer.

        Raises:
            UnsupportedOperationError: Another caller must answer.
        """
        if self.approvers is None and not is_foreign(record, caller):
            return
        if not waits_for_approval(record):
            return
        if not is_foreign(record, caller):
            raise UnsupportedOperationError("An approver decides this request, not its requester")
        if not self.is_approver(caller):
            raise UnsupportedOperationError("Only an approver may decide this request")

    @contextmanager
    def hiding_reasons(self, record: TaskRecord, caller: Caller) -> Generator[None]:
        """Hide why an answer does not fit, if the caller may not read the task's content.

        Raises:
            InvalidParamsError: The answer does not fit.
        """
        try:
            yield
        except InvalidParamsError:
            if not is_foreign(record, caller) or self._reads_content(caller):
                raise
            raise InvalidParamsError("The answer does not fit the question") from None

    def _reads_content(self, caller: Caller) -> bool:
        return self.read_content and self.is_operator(caller)

    def _status(self, status: TaskStatus, caller: Caller) -> TaskStatus:
        """Return a status without its message; approvers still get requests for approval.

        Only the agent writes the messages of a status, so clients can't imitate these requests.
        """
        shows_message = (
            self.is_approver(caller)
            and status.state in PAUSED
            and is_approval_request(status.message)
        )
        return status if shows_message else replace(status, message=None)

    def _payload(self, payload: Payload, record: TaskRecord, caller: Caller) -> Payload | None:
        """Return the payload of an event as a caller may see it; None to leave the event out."""
        if isinstance(payload, Task):
            return self.view(replace(record, task=payload), caller)
        if self._reads_content(caller):
            return payload
        if not isinstance(payload, TaskStatusUpdateEvent) or payload.metadata == PROGRESS:
            return None
        metadata = RESTARTED if payload.metadata == RESTARTED else {}
        return replace(payload, status=self._status(payload.status, caller), metadata=metadata)


def is_foreign(record: TaskRecord, caller: Caller) -> bool:
    """Return whether a task belongs to another principal; the tenant does not matter."""
    principal, _ = principal_and_tenant(record.owner, record.skill)
    return principal != caller.principal


def waits_for_approval(record: TaskRecord) -> bool:
    """Return whether a task waits for a person's yes or no."""
    if record.task.status.state not in PAUSED or record.resume is None:
        return False
    return asks_yes_or_no(Pause.unpack(record.resume))


def _members(document: Json, *names: str) -> Json:
    return {name: document[name] for name in names if name in document}


def audit(
    operation: str,
    caller: Caller,
    record: TaskRecord | None = None,
    *,
    principal: str | None = None,
) -> None:
    """Log the access of a caller to tasks of other principals.

    Args:
        operation: The operation.
        caller: The operator or approver.
        record: The task, if the access is to a single one.
        principal: The principal, if the access is to all of its tasks. If *record* and *principal*
            are both None, the access is to the tasks of all principals.
    """
    extra: dict[str, Any] = {
        "event": "operator_access",
        "operation": operation,
        "operator": clean(caller.principal),
    }
    if principal is not None:
        extra["owner"] = principal = clean(principal)
        logger.info("Operator access: %s of %s", operation, principal, extra=extra)
        return
    if record is None:
        logger.info("Operator access: %s of all principals", operation, extra=extra)
        return
    owner = clean(principal_and_tenant(record.owner, record.skill)[0])
    extra |= {"owner": owner, "task": record.task.id, "skill": record.skill}
    logger.info("Operator access: %s of a task of %s", operation, owner, extra=extra)
