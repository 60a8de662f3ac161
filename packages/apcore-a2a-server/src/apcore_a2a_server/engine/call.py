"""A message that may run, and what it led to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from a2a import types as a2a

from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.store import SendKey, Webhook

from .clients import Caller


@dataclass(frozen=True, slots=True)
class Call:
    """A message that may run: which skill with what input, as which task."""

    skill: Skill
    inputs: dict[str, Any]
    message: a2a.Message
    caller: Caller
    streaming: bool = False
    rest: Sequence[Any] = ()
    """The parts of the message that are not the input, as JSON."""
    continues: bool = False
    """Whether it belongs to a conversation that has begun."""
    detached: bool = False
    """Whether it goes on without anybody who waits for it."""
    approvals: Approvals = field(default_factory=Approvals)
    token: str | None = None
    """The approval id to resume with, when the executor has its user's approval handler."""
    webhook: Webhook | None = None
    """The webhook that the message brings for its task."""
    key: SendKey | None = None
    """The idempotency key of the send."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message that has been admitted: its task, and the version it starts behind."""

    task_id: str
    since: int
