"""Calls of skills, and their stored form."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from apcore import Identity
from apcore_a2a_core import InputRequiredError, PartConverter
from apcore_a2a_core.data import Message
from apcore_a2a_core.records import is_large_message
from msgspec import Struct, field

from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.store import SendKey, TaskRecord, Webhook
from apcore_a2a_server.trace_context import Trace, new_trace

from .clients import Caller
from .messages import split_parts


@dataclass(frozen=True, slots=True)
class Resumption:
    """The answer to a pause, as the module of the resumed call gets it.

    Attributes:
        answer: The parts of the answer, as JSON.
        approved: The answer to a module that has asked for a yes or a no; None otherwise.
        state: The state that the module saved for this run when it paused the task.
    """

    answer: Sequence[Any]
    approved: bool | None = None
    state: Any = None


class Call(Struct, frozen=True):
    """A call of a skill for one task.

    Attributes:
        skill: The skill to run.
        inputs: The inputs of its module.
        message: The message that the call comes from, with the ids of its task and context.
        caller: The requester of the task.
        streaming: Whether to call the module's `stream` method, if it has one.
        other_parts: The parts of the message that are not inputs, as JSON.
        has_history: Whether the conversation may have earlier messages.
        detached: Whether the task continues when no client waits for it.
        approvals: The approvals of the task so far.
        token: The approval id to resume with, if the executor has its own approval handler.
        webhook: The push config that the message adds to its task.
        key: The idempotency key of the request.
        metadata: The metadata of the request, overridden by that of its message.
        resumption: The answer that resumes the task, for its module; None for a new task, and for
            the answer to the question which skill to call, since no module has run yet.
        wants_text: Whether text is all that the client accepts as a result.
        question: The question to ask the client instead of calling the module; None to call it.
        asks_again: Whether the client is asked again if the answer in the message does not fit.
        problem: Why the answer does not fit; empty if it does.
        trace: The span of the call, the parent of the spans of calls that its module makes.
        answered_by: The principal that answers in place of the requester; empty if the requester
            answers, or for a new task.
    """

    skill: Skill
    inputs: dict[str, Any]
    message: Message
    caller: Caller
    streaming: bool = False
    other_parts: Sequence[Any] = ()
    has_history: bool = False
    detached: bool = False
    approvals: Approvals = field(default_factory=Approvals)
    token: str | None = None
    webhook: Webhook | None = None
    key: SendKey | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resumption: Resumption | None = None
    wants_text: bool = False
    question: InputRequiredError | None = None
    asks_again: bool = False
    problem: str = ""
    trace: Trace = field(default_factory=new_trace)
    answered_by: str = ""


class Ticket(Struct, frozen=True):
    """The task of an admitted message, with the facts that the response needs.

    Attributes:
        task_id: The id of the message's task.
        after_version: The version after which the stream of the task's events starts.
        ended_record: The record of the task, if its run had completed it when the ticket was made;
            else None.
        foreign_record: If the task belongs to another principal, its record before the message
            came; else None.
    """

    task_id: str
    after_version: int
    ended_record: TaskRecord | None = None
    foreign_record: TaskRecord | None = None


def members_of(instance: Any) -> dict[str, Any]:
    """Return the values of the fields of a dataclass instance, by name.

    Unlike `asdict`, this does not copy the values: copying 90,000 numbers takes 0.2 s.
    """
    return {member.name: getattr(instance, member.name) for member in fields(instance)}


def pack(call: Call, converter: PartConverter) -> bytes | None:
    """Serialize *call* so that another replica can repeat it.

    Inputs that can be read again from a large message are left out.

    Returns:
        JSON; None if the skill is not repeatable, or the call cannot be written as JSON.
    """
    identity = call.caller.packed_identity()
    loses_identity = identity is None and call.caller.identity is not None
    if not call.skill.is_repeatable or loses_identity:
        return None
    # replicas of other releases read this too during a rolling deploy: keep the names
    document = {
        "inputs": call.inputs,
        "identity": identity,
        "streaming": call.streaming,
        "rest": [*call.other_parts],
        "continues": call.has_history,
        "granted": call.approvals.granted,
        "done": call.approvals.done,
        "token": call.token,
        "message": call.message.message_id,
        "metadata": {**call.metadata},
        "resumption": None if call.resumption is None else members_of(call.resumption),
        "text": call.wants_text,
        "trace": str(call.trace),
    }
    if is_large_message(call.message) and _message_has_inputs(call, converter):
        document |= {"inputs": None, "rest": None}
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError):  # results of approved calls can have any type
        return None


def unpack_identity(packed: Mapping[str, Any]) -> Identity:
    """Return an identity from its JSON, as `Caller.packed_identity` and `pack` write it."""
    return Identity(packed["id"], packed["type"], tuple(packed["roles"]), packed["attrs"])


def _message_has_inputs(call: Call, converter: PartConverter) -> bool:
    """Return whether the inputs and other parts of *call* can be read from its message again.

    They cannot if the message is an answer: its inputs were added to earlier ones.
    """
    try:
        from_message = split_parts(converter, call.message.parts, call.skill)
    except (InvalidParamsError, ContentTypeNotSupportedError):
        return False
    return from_message == (call.inputs, [*call.other_parts])


def unpack(packed_call: bytes, skill: Skill, record: TaskRecord, converter: PartConverter) -> Call:
    """Return the call that `pack` has serialized, for the task of *record*.

    Raises:
        ValueError: The call was made from a message that the task does not have any more.
        InvalidParamsError: No part of that message can be read as inputs of the skill.
        ContentTypeNotSupportedError: The skill does not take the media types of these parts.
    """
    document: dict[str, Any] = json.loads(packed_call)
    task, packed_identity = record.task, document["identity"]
    inputs, other_parts = document["inputs"], document["rest"]
    if inputs is None:
        # clients reuse message ids: the call came from the latest of these messages
        messages = [old for old in task.history if old.message_id == document["message"]]
        if not messages:
            raise ValueError("The message of the call is gone")
        inputs, other_parts = split_parts(converter, messages[-1].parts, skill)
    principal, tenant = principal_and_tenant(record.owner, record.skill)
    identity = packed_identity and unpack_identity(packed_identity)
    return Call(
        skill,
        inputs,
        Message(message_id=document["message"], task_id=task.id, context_id=task.context_id),
        Caller(principal, identity, tenant=tenant, client=principal),
        streaming=document["streaming"],
        other_parts=other_parts,
        has_history=document["continues"],
        detached=True,
        approvals=Approvals(document["granted"], document["done"]),
        token=document["token"],
        metadata=document["metadata"],
        resumption=document["resumption"] and Resumption(**document["resumption"]),
        wants_text=document["text"],
        # calls stored by an earlier release have no trace
        trace=Trace.read(document.get("trace", "")) or new_trace(),
    )
