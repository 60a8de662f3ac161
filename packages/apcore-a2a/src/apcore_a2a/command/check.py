"""The implementation of `check`, which tests whether an agent conforms to the protocol."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

import httpx
from apcore_a2a_client import (
    A2AError,
    A2AServerError,
    AgentCard,
    AgentSkill,
    CredentialsRefusedError,
    InvalidParamsError,
    Message,
    SkillNotFoundError,
    SyncA2AClient,
    Task,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
)
from apcore_a2a_client.tasks import apply_event
from apcore_a2a_core import clean
from apcore_a2a_core.data import Json

from .raw_client import Answer, RawClient
from .sending import message_of, takes_text_only

VERSIONS = ("1.0", "0.3")
MAX_PROBLEMS = 10
"""Maximum number of problems of a card that are listed."""
DANGEROUS_TAGS = {"destructive", "requires-approval"}
"""A skill with one of these tags is called only if the user names the skill."""
UNKNOWN_TASK_ID = "no-such-task-of-apcore-a2a-check"
UNKNOWN_METHOD = "NoSuchMethodOfApcoreA2aCheck"
STREAM_METHODS = {
    "1.0": ("SubscribeToTask", "SendStreamingMessage"),
    "0.3": ("tasks/resubscribe", "message/stream"),
}
"""The streaming methods of each version: to subscribe to a task, and to send a message."""
MALFORMED = b'{"jsonrpc": "2.0", "id": 1, "method": '
PARSE_ERROR, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32601, -32602  # JSON-RPC 2.0 §5.1
TASK_NOT_FOUND, UNSUPPORTED_OPERATION = -32001, -32004  # A2A 1.0 §5.4

Outcome = Literal["ok", "FAILED", "skipped"]


class CheckResult(NamedTuple):
    """The result of one check.

    Attributes:
        name: The name of the check, such as `1.0 send`.
        outcome: Whether the agent passed, or the check was skipped.
        details: The result or the problem, in a sentence.
    """

    name: str
    outcome: Outcome
    details: str


class Skipped(Exception):
    """A check can't be made; the message says why."""


class ProtocolViolation(Exception):
    """An agent does something that the protocol forbids."""


def _expect(condition: object, problem: str) -> None:
    if not condition:
        raise ProtocolViolation(problem)


def _expect_code(answer: Answer, *codes: int) -> str:
    """Describe *answer*, which must be an error with one of these JSON-RPC codes."""
    expected = " or ".join(f"the error {code}" for code in codes)
    _skip_if_busy(answer)
    _expect(answer.code in codes, f"expected {expected}, got {answer}")
    return f"refused as expected, with {answer}"


def _expect_status(answer: Answer, *statuses: int) -> str:
    """Describe *answer*, which must have one of these HTTP statuses."""
    expected = " or ".join(f"HTTP {status}" for status in statuses)
    _skip_if_busy(answer)
    _expect(answer.status in statuses, f"expected {expected}, got {answer}")
    return f"refused as expected, with {answer}"


def _skip_if_busy(answer: Answer) -> None:
    if answer.status in (429, 503):
        raise Skipped(f"the agent is too busy to answer: {answer}")


def check(new_client: Callable[..., SyncA2AClient], arguments: Any) -> Iterator[CheckResult]:
    """Try an agent, and yield the result of each check.

    Args:
        new_client: Function that takes a protocol version (None for any) and, optionally, an
            `http_client` and a `verify_card`, and returns a client of the agent.
        arguments: The arguments of the command.

    Raises:
        A2AError: There is no usable Agent Card, so there is nothing to check.
        CredentialsRefusedError: The card points to an origin that must not get the credentials.
    """
    documents: list[Json] = []
    # `verify_card` gets the JSON of each card that is fetched
    with new_client(None, verify_card=documents.append) as client:
        card = client.agent_card
    yield from check_card(documents[-1])
    offered_versions = {interface.protocol_version[:3] for interface in card.supported_interfaces}
    for version in VERSIONS:
        if version not in offered_versions:
            yield CheckResult(version, "skipped", "the card does not offer this version")
        elif arguments.protocol in (None, version):
            raw_client = RawClient(timeout=arguments.timeout)
            with raw_client, new_client(version, raw_client) as client:
                yield from _VersionChecks(client, raw_client, card, arguments, version).run()


def check_card(document: Json) -> Iterator[CheckResult]:
    """Check the JSON of an Agent Card against the schemas of the versions that it claims."""
    claims = {"1.0": "supportedInterfaces" in document, "0.3": "url" in document}
    if not any(claims.values()):
        yield CheckResult(
            "card", "FAILED", "it has neither supportedInterfaces (1.0) nor url (0.3)"
        )
    for version, find_problems in (("1.0", _find_problems_1_0), ("0.3", _find_problems_0_3)):
        if claims[version]:
            problems = find_problems(document)
            summary = "; ".join(problems[:MAX_PROBLEMS])
            details = summary or f"valid against the schema of {version}"
            yield CheckResult(f"{version} card", "FAILED" if problems else "ok", details)


def _find_problems_1_0(document: Any) -> list[str]:
    """Return the violations of the protobuf definition of A2A 1.0 in a card."""
    from a2a.types import AgentCard as ProtobufCard
    from a2a.utils.errors import InvalidParamsError as SdkError
    from a2a.utils.proto_utils import validate_proto_required_fields
    from google.protobuf.json_format import ParseDict, ParseError

    try:
        # A card may have members of 0.3, too.
        card = ParseDict(document, ProtobufCard(), ignore_unknown_fields=True)
        validate_proto_required_fields(card)
    except ParseError as error:
        return [str(error)]
    except SdkError as error:
        data = cast("dict[str, Any] | None", error.data)  # pyright: ignore[reportUnknownMemberType]  # in a2a-sdk
        violations: list[Any] = data.get("errors", []) if data else []
        return [f"{v['field']}: {v['message']}" for v in violations] or [str(error)]
    return []


def _find_problems_0_3(document: Any) -> list[str]:
    """Return the violations of the JSON schema of A2A 0.3 in a card."""
    from a2a.compat.v0_3.types import AgentCard as Card
    from pydantic import ValidationError

    try:
        Card.model_validate(document)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    return []


class _VersionChecks:
    """The checks of one protocol version."""

    def __init__(
        self,
        client: SyncA2AClient,
        raw_client: RawClient,
        card: AgentCard,
        arguments: Any,
        version: str,
    ) -> None:
        self._client = client
        self._raw_client = raw_client
        self._card = card
        self._version = version
        self._skill_id, self._message = _choose_message(card, arguments)
        self._task: Task | None = None
        skill = card.skill(self._skill_id or "")
        is_dangerous = arguments.skill is None and skill and {*skill.tags} & DANGEROUS_TAGS
        self._skip_reason = (
            "the only skill is destructive or needs approval: name it to call it"
            if is_dangerous
            else ""
        )

    def run(self) -> Iterator[CheckResult]:
        """Make each check, and yield its result."""
        for method in (
            self.send,
            self.get,
            self.stream,
            self.cancel,
            self.errors,
            self.unknown_method,
            self.malformed_json,
            self.refused_stream,
        ):
            name = f"{self._version} {method.__name__.replace('_', ' ')}"
            try:
                yield CheckResult(name, "ok", method())
            except Skipped as reason:
                yield CheckResult(name, "skipped", str(reason))
            except CredentialsRefusedError:  # the command asks whether to send the credentials
                raise
            except (A2AError, ProtocolViolation, httpx.HTTPError) as error:
                yield CheckResult(name, "FAILED", f"{type(error).__name__}: {error}")

    def send(self) -> str:
        """Send a message, and wait for the task to settle."""
        if self._skip_reason:
            raise Skipped(self._skip_reason)
        try:
            task = self._client.send_message(self._message, skill=self._skill_id)
            self._task = self._client.wait(task)
        except (InvalidParamsError, SkillNotFoundError) as error:
            self._skip_reason = f"the message was refused ({error}): try SKILL and --input"
            raise Skipped(self._skip_reason) from None
        return _describe(self._task)

    def get(self) -> str:
        """Get the task that `send` created."""
        task = self._require_task()
        fetched = self._client.get_task(task.id)
        _expect(fetched.id == task.id, f"the agent returned the task {fetched.id}")
        state, fetched_state = task.status.state, fetched.status.state
        _expect(fetched_state == state, f"the state was {state}, and is {fetched_state} now")
        return f"returned the task, {fetched_state}"

    def stream(self) -> str:
        """Send a message, and read the events of the stream."""
        if not self._card.capabilities.streaming:
            raise Skipped("the card says that there are no streams")
        if self._skip_reason:
            raise Skipped(self._skip_reason)
        count, task = 0, Task("", TaskStatus(TaskState.UNSPECIFIED))
        for event in self._client.stream_message(self._message, skill=self._skill_id):
            count, task = count + 1, apply_event(task if count else None, event)
        _expect(count, "there was no event")
        return f"{count} event{'' if count == 1 else 's'}, {_describe(task)}"

    def cancel(self) -> str:
        """Cancel a task that has just been created, unless it has ended already."""
        self._require_task()
        task = self._client.send_message(self._message, skill=self._skill_id, blocking=False)
        if not task.id or task.status.state.is_terminal:
            return "nothing to cancel: no task is open"
        try:
            canceled = self._client.cancel_task(task.id)
        except A2AServerError as error:
            state = self._client.get_task(task.id).status.state
            _expect(state.is_terminal, f"refused while the task was {state}: {error}")
            return f"refused, because the task had ended: {error}"
        return f"the task is {canceled.status.state}"

    def errors(self) -> str:
        """Get and cancel a task that does not exist."""
        for method in (self._client.get_task, self._client.cancel_task):
            try:
                method(UNKNOWN_TASK_ID)
            except TaskNotFoundError:
                continue
            raise ProtocolViolation(f"{method.__name__} of an unknown task succeeded")
        return "unknown tasks are refused with TaskNotFound"

    def unknown_method(self) -> str:
        """Call a method that does not exist."""
        if self._speaks_json_rpc():
            return _expect_code(self._call(UNKNOWN_METHOD, {}), METHOD_NOT_FOUND)
        path = self._path(f"/{UNKNOWN_METHOD}")
        return _expect_status(self._raw_client.send_raw(b"", "GET", path), 404)

    def malformed_json(self) -> str:
        """Send JSON that ends too early."""
        if self._speaks_json_rpc():
            return _expect_code(self._raw_client.send_raw(MALFORMED), PARSE_ERROR)
        path = self._path("/message:send")
        return _expect_status(self._raw_client.send_raw(MALFORMED, path=path), 400)

    def refused_stream(self) -> str:
        """Request streams that the agent must refuse.

        Subscribe to an unknown task; over JSON-RPC, also request a stream without a message.
        """
        if not self._speaks_json_rpc():
            path = self._path(f"/tasks/{UNKNOWN_TASK_ID}:subscribe")
            statuses = (404,) if self._card.capabilities.streaming else (400, 404)
            return _expect_status(self._raw_client.send_raw(b"", "GET", path), *statuses)
        subscribe_method, send_method = STREAM_METHODS[self._version]
        no_stream_codes = () if self._card.capabilities.streaming else (UNSUPPORTED_OPERATION,)
        answer = self._call(subscribe_method, {"id": UNKNOWN_TASK_ID})
        first_result = _expect_code(answer, TASK_NOT_FOUND, *no_stream_codes)
        answer = self._call(send_method, {})
        return f"{first_result}; {_expect_code(answer, INVALID_PARAMS, *no_stream_codes)}"

    def _speaks_json_rpc(self) -> bool:
        """Let the client send a request, and return whether it was JSON-RPC."""
        with suppress(A2AServerError):
            self._client.get_task(UNKNOWN_TASK_ID)
        return self._raw_client.is_json_rpc

    def _call(self, method: str, params: dict[str, Any]) -> Answer:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._raw_client.send_raw(json.dumps(request).encode())

    def _path(self, path: str) -> str:
        """Prefix *path* with the base path of the request that `_speaks_json_rpc` sent."""
        last_path = self._raw_client.last_request.url.path
        return last_path.removesuffix(f"/tasks/{UNKNOWN_TASK_ID}") + path

    def _require_task(self) -> Task:
        if self._task is None or not self._task.id:
            raise Skipped(self._skip_reason or "there is no task from the first message")
        return self._task


def _choose_message(card: AgentCard, arguments: Any) -> tuple[str | None, Message]:
    """Return the id of the skill to call, by default the only one, and the message for it.

    The default message is an example of the skill.
    """
    skill = card.skill(arguments.skill or "")
    if arguments.skill is None and len(card.skills) == 1:
        (skill,) = card.skills
    skill_id = arguments.skill or (skill.id if skill else None)
    content = arguments.input if arguments.input is not None else _example(skill)
    return skill_id, message_of(content, text_only=takes_text_only(card, skill_id))


def _example(skill: AgentSkill | None) -> Any:
    """Return the first example of a skill, parsed if it is an object; "Hello" if there is none."""
    example = next(iter(skill.examples), "Hello") if skill else "Hello"
    with suppress(ValueError):
        value: Any = json.loads(example)
        if example.startswith("{"):
            return value
    return example


def _describe(task: Task) -> str:
    """Describe a settled task. One without an id stands for a message that came instead."""
    beginning = "the task is" if task.id else "a message:"
    _expect(task.status.state.is_settled, f"the task is still {task.status.state}")
    return f"{beginning} {task.status.state}"


def verdict(checks: list[CheckResult]) -> str:
    """Return a sentence that sums up the checks, and a line for each that has failed.

    Example:
        ```python
        from apcore_a2a.command.check import CheckResult, verdict

        card = CheckResult("1.0 card", "ok", "valid")
        print(verdict([card, CheckResult("1.0 send", "ok", "completed")]))
        #> The agent works: 2 checks ok
        ```
    """
    counts = {
        outcome: sum(check.outcome == outcome for check in checks)
        for outcome in ("FAILED", "skipped")
    }
    ok_count = len(checks) - sum(counts.values())
    other_counts = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    ok_text = f"{ok_count} check{'' if ok_count == 1 else 's'} ok"
    summary = ", ".join([ok_text, *other_counts])
    if counts["FAILED"]:
        failed_checks = [check for check in checks if check.outcome == "FAILED"]
        failures = [f"\n  {check.name}: {clean(check.details, 300)}" for check in failed_checks]
        return f"The agent does not conform to the protocol: {summary}{''.join(failures)}"
    return f"The agent works: {summary}"
