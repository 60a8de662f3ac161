"""Whatever is posted, the agent's response follows the protocol and nothing leaks."""

import asyncio
import json
import logging
import re
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP
from apcore import Executor
from apcore_a2a_server.app.agent import Agent as ServerAgent
from apcore_a2a_server.modules.threads import check_threads, value_thread
from google.protobuf.json_format import ParseDict
from google.protobuf.json_format import ParseError as ProtoParseError
from hypothesis import HealthCheck, given, settings
from jsonschema import ValidationError

from tests.e2e.bindings import OLD_METHODS, RESULTS, SCHEMAS, check_details
from tests.e2e.wire import parse

from .checking_client import Agent, Json, check_no_leaks, state_of
from .fuzzing import COSTLY, INPUTS, TASK_PLACEHOLDERS, Case, cases
from .inloop import NEEDS_APPROVAL, ActionModule, app_of, echo
from .modules import Inputs, registry
from .test_stateful import Clock, Loop

PROFILE = settings(
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

CLIENT_TIMEOUT, SLACK, RUN_LIMIT = 2.0, 4.0, 300.0
"""Seconds until a client disconnects, for the server to notice, and for the longest run."""

FAILING_SKILLS = {
    "raises",
    "raises.later",
    "raises.stream",
    "bad_output",
    "bad_output.stream",
    "nested",
}
"""Skills that may fail for any reason."""
EXCUSED_ERRORS = {"OutputError", "ModuleTimeoutError"}
"""Errors with which the other skills may fail: unsupported outputs, and timeouts."""

CODES = {*JSON_RPC_ERROR_CODE_MAP.values(), -32029} - {-32603}
"""The error codes that responses may have; internal errors occur only in tasks."""
UNREAD_CODES = {-32700, -32600, -32005}
"""The error codes of responses to requests whose id may not have been read."""
RESPONSES = dict(OLD_METHODS.values())
"""The schema of each method's responses in 0.3."""


@dataclass
class Reply:
    """The response to a request, as ASGI messages."""

    status: int = 0
    media_type: str = ""
    body: bytes = b""
    is_over: bool = False
    hung_up: bool = False
    """Whether the client disconnected before the end."""

    def take(self, message: Any) -> None:
        """Process one ASGI message."""
        if message["type"] == "http.response.start":
            assert not self.status, "an answer begins twice"
            self.status = message["status"]
            self.media_type = dict(message["headers"])[b"content-type"].decode()
            return
        assert self.status, "an answer has no beginning"
        assert not self.is_over, "an answer continues after its end"
        self.body += message.get("body", b"")
        self.is_over = not message.get("more_body", False)

    @property
    def answers(self) -> list[Json]:
        """The JSON-RPC responses: one, or all of a stream."""
        if self.media_type == "application/json":
            return [parse(self.body.decode())]
        assert self.media_type.startswith("text/event-stream"), self.media_type
        assert not self.body or self.body.endswith(b"\n\n"), "a stream ends within an event"
        frames = [frame for frame in self.body.decode().split("\n\n") if frame]
        if self.is_refused_stream:
            return [parse(frames[0].removeprefix("data: "))]
        return [_event(frame) for frame in frames if frame != ": keep-alive"]

    @property
    def is_refused_stream(self) -> bool:
        """Whether this is a stream of 0.3 whose only event is an error, without an event id."""
        return re.match(rb'data: \{"jsonrpc":"2.0","id":.*"error":\{', self.body) is not None

    @property
    def kind(self) -> str:
        """The kind of the response: "hung up", "stream", "result", or an error code."""
        if not self.status:
            return "hung up"
        if self.media_type != "application/json" and not self.is_refused_stream:
            return "stream"
        return str(self.answers[0].get("error", {}).get("code", "result"))


def _event(frame: str) -> Json:
    first, second = frame.split("\n")
    assert re.fullmatch(r"id: \d+", first), first
    assert second.startswith("data: "), second
    event: Json = parse(second[6:])
    return event


def judge(request_body: bytes, reply: Reply) -> None:
    """Check the invariants of every response."""
    assert reply.is_over or reply.hung_up, "an answer has no end"
    if not reply.status:
        return
    assert 200 <= reply.status < 500, f"the status is {reply.status}"
    request = parse_request(request_body)
    for answer in reply.answers:
        assert isinstance(answer, dict)
        assert answer["jsonrpc"] == "2.0"
        if "error" in answer:
            _judge_error(request, answer)
        else:
            _judge_result(request, answer)
    check_no_leaks(reply.body.decode().replace('\\"', '"'))


def _judge_error(request: Json, answer: Json) -> None:
    assert {*answer} == {"jsonrpc", "id", "error"}
    error = answer["error"]
    assert {*error} == {"code", "message", "data"}
    assert isinstance(error["message"], str)
    assert error["code"] in CODES, f"the code is {error['code']}"
    sent_id = request.get("id") if isinstance(request, dict) else None
    is_invalid_id = isinstance(sent_id, bool | dict | list) or sent_id in (inf, -inf)
    unread = answer["id"] is None and (error["code"] in UNREAD_CODES or is_invalid_id)
    assert unread or is_same(answer["id"], request.get("id")), f"the id is {answer['id']!r}"
    if isinstance(error["data"], list):  # as in 1.0
        check_details(error["data"])


def _judge_result(request: Json, answer: Json) -> None:
    assert {*answer} == {"jsonrpc", "id", "result"}
    assert is_same(answer["id"], request["id"]), f"the id is {answer['id']!r}"
    method, result = request["method"], answer["result"]
    if method == "tasks/list":  # 0.3 has no schema for it
        for task in result["tasks"][:3]:
            SCHEMAS["Task"].validate(task)
    elif "/" in method:
        SCHEMAS[RESPONSES[method]].validate(
            {**answer, "id": 1}
        )  # the schema allows no fractional ids
    else:
        ParseDict(result, RESULTS[method]())


def parse_request(body: bytes) -> Json:
    """Parse a request; return an empty object if that fails."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def is_same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


async def ask(inputs: Inputs, context: Any) -> Inputs:
    """Ask for more input until the text is "yes"."""
    if inputs.get("text") != "yes":
        context.services.ask("What now?", {"choices": ["yes", "no"]}, field="text")
    return inputs


class UnexpectedRecords(logging.Handler):
    """A log handler that stores warnings and errors that should not occur."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("apcore_a2a") and not _is_excused(record):
            self.messages.append(self.format(record))


def _is_excused(record: logging.LogRecord) -> bool:
    """Return whether the record reports a failure that is allowed."""
    error = record.exc_info[1] if record.exc_info else None
    failed = record.name.startswith("apcore_a2a_core") and isinstance(record.args, tuple)
    return failed and (
        type(error).__name__ in EXCUSED_ERRORS or FAILING_SKILLS.issuperset(record.args or ())
    )


@dataclass(frozen=True)
class Defect:
    """A case, its response, and the failed check."""

    case: Case
    reply: Reply
    error: BaseException


class FuzzedAgent:
    """A real agent, called through ASGI, in an event loop with a simulated clock.

    Attributes:
        outcomes: The number of responses of each kind.
        defect: The latest defect.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.defect: Defect | None = None
        self.unexpected_records = UnexpectedRecords()
        self._open()

    def _open(self) -> None:
        modules = registry()
        modules.register("ask", ActionModule(ask))
        modules.register("costly", ActionModule(echo, input_schema=COSTLY, output_schema=COSTLY))
        modules.register("approve", ActionModule(echo, annotations=NEEDS_APPROVAL))
        self._executor = Executor(modules)
        self.app: Any = app_of(self._executor, max_tasks=500, execution_timeout=RUN_LIMIT)
        self._agent: ServerAgent = self.app.state.agent
        self._agent.setup.state.has_started = True  # no lifespan sets it
        self._runner = asyncio.Runner(loop_factory=lambda: Loop(Clock(self._has_threads)))
        self._runner.get_loop().set_exception_handler(self._on_stray_error)
        self._ids: dict[str, str] = {}

    def _close(self) -> None:
        self._runner.close()
        self._executor.close()
        self.unexpected_records.messages.clear()

    def __enter__(self) -> "FuzzedAgent":
        logging.getLogger().addHandler(self.unexpected_records)
        core_logger = logging.getLogger("apcore_a2a_core")
        core_logger.addHandler(self.unexpected_records)
        core_logger.propagate = False  # expected failures would flood the log with tracebacks
        return self

    def __exit__(self, *raised: object) -> None:
        core_logger = logging.getLogger("apcore_a2a_core")
        core_logger.propagate = True
        core_logger.removeHandler(self.unexpected_records)
        logging.getLogger().removeHandler(self.unexpected_records)
        self._close()

    def check(self, case: Case) -> None:
        """Send a case and check the response and the agent's state."""
        reply = Reply()
        try:
            self._runner.run(self._check(case, reply))
        except BaseException as error:  # the next case gets a new agent
            self.defect = Defect(case, reply, error)
            self._close()
            self._open()
            raise

    async def _check(self, case: Case, reply: Reply) -> None:
        body = await self._with_task_ids(case.body)
        await self._post(body, case.headers, reply)
        judge(body, reply)
        self.outcomes[reply.kind] += 1
        await asyncio.sleep(SLACK)
        assert not len(self._agent.handler.streams), "a stream is left open"
        assert not self.unexpected_records.messages, self.unexpected_records.messages

    def check_leftovers(self) -> None:
        """Check that nothing is left over after all cases."""
        self._runner.run(self._check_leftovers())

    async def _check_leftovers(self) -> None:
        await asyncio.sleep(RUN_LIMIT + SLACK)
        assert not self._agent.engine.runs, "runs are left over"
        assert asyncio.all_tasks() == {asyncio.current_task()}, "asyncio tasks are left over"
        await self._create_task("@finished")  # the agent still works

    async def _with_task_ids(self, body: bytes) -> bytes:
        """Replace the placeholders in *body* with ids of tasks in the right states."""
        for name, (_, state) in TASK_PLACEHOLDERS.items():
            if name.encode() in body:
                if await self._state(self._ids.get(name, "")) != state:
                    self._ids[name] = await self._create_task(name)
                body = body.replace(name.encode(), self._ids[name].encode())
        return body

    async def _create_task(self, name: str) -> str:
        """Create a task of this kind and return its id."""
        skill, state = TASK_PLACEHOLDERS[name]
        wire = Agent(None, "1.0")  # type: ignore[arg-type]  # it sends nothing
        options = {"returnImmediately": skill == "slow"}
        params = {**wire.params(skill, wire.part(data=INPUTS[skill][0])), "configuration": options}
        task_id: str = (await self._ask("SendMessage", params))["result"]["task"]["id"]
        if state == "canceled":
            await self._ask("CancelTask", {"id": task_id})
        assert await self._state(task_id) == state, f"a task of {skill} is not {state}"
        return task_id

    async def _state(self, task_id: str) -> str:
        answer = await self._ask("GetTask", {"id": task_id, "historyLength": 0})
        return state_of(answer["result"]) if "result" in answer else "unknown"

    async def _ask(self, method: str, params: Json) -> Json:
        reply = Reply()
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        await self._post(json.dumps(request).encode(), {}, reply)
        (answer,) = reply.answers
        return answer

    async def _post(self, body: bytes, headers: dict[str, str], reply: Reply) -> None:
        """Post a request and read its response; the client disconnects after a while."""
        bodies = [body]

        async def receive() -> Json:
            if bodies:
                return {"type": "http.request", "body": bodies.pop()}
            await asyncio.sleep(CLIENT_TIMEOUT)
            reply.hung_up = True
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            reply.take(message)

        raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
        async with asyncio.timeout(CLIENT_TIMEOUT + SLACK):
            await self.app({**scope, "headers": raw_headers}, receive, send)

    def _has_threads(self) -> bool:
        """Return whether a thread is running or is about to start."""
        setup = self._agent.setup
        is_busy = value_thread.pending + check_threads.pending > 0
        return is_busy or setup.threads.running > 0 or setup.access.is_validating

    def _on_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unexpected_records.messages.append(
            f"{context['message']}: {context.get('exception')!r}"
        )


@pytest.mark.parametrize("examples", [400, pytest.param(5000, marks=pytest.mark.soak)])
def test_every_generated_request_gets_a_valid_response_and_leaks_nothing(examples: int) -> None:
    with FuzzedAgent() as fuzzed:
        settings(PROFILE, max_examples=examples)(given(case=cases())(fuzzed.check))()
        fuzzed.check_leftovers()
    assert fuzzed.outcomes.total() >= examples
    assert fuzzed.outcomes["result"] + fuzzed.outcomes["stream"] > examples / 10
    if examples >= 5000:
        assert fuzzed.outcomes.keys() >= {"hung up", *map(str, CODES - {-32006, -32008, -32029})}


REQUEST = b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t1"}}'
TASK = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
ERROR = {"code": -32001, "message": "Task not found", "data": None}
VALID = {"jsonrpc": "2.0", "id": 1, "error": ERROR}


def reply_with(answer: Any) -> Reply:
    return Reply(200, "application/json", json.dumps(answer).encode(), True)


@pytest.mark.parametrize("answer", [VALID, {"jsonrpc": "2.0", "id": 1, "result": TASK}])
def test_the_judge_accepts_valid_responses(answer: Json) -> None:
    judge(REQUEST, reply_with(answer))


@pytest.mark.parametrize(
    "answer",
    [
        [VALID],
        {**VALID, "id": None},
        {**VALID, "id": "1"},
        {**VALID, "id": 1.0},
        {**VALID, "jsonrpc": "1.0"},
        {**VALID, "result": None},
        {**VALID, "error": {**ERROR, "code": -32603}},
        {**VALID, "error": {**ERROR, "code": -1}},
        {**VALID, "error": {**ERROR, "message": 'File "x.py"'}},
        {**VALID, "error": {**ERROR, "message": "A KeyError"}},
        {**VALID, "error": {**ERROR, "message": "/work/x"}},
        {**VALID, "error": {**ERROR, "data": [{"@type": "x"}]}},
        {"jsonrpc": "2.0", "id": 1, "result": {**TASK, "state": "working"}},
    ],
)
def test_the_judge_rejects_invalid_responses(answer: Any) -> None:
    with pytest.raises((AssertionError, ProtoParseError, ValidationError)):
        judge(REQUEST, reply_with(answer))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(500, "application/json", json.dumps(VALID).encode(), True),
        Reply(200, "application/json", json.dumps(VALID).encode(), False),
        Reply(200, "text/html", json.dumps(VALID).encode(), True),
        Reply(200, "text/event-stream", b"data: {}\n\n", True),
        Reply(200, "text/event-stream", b"id: 1\ndata: {", True),
        Reply(),
    ],
)
def test_the_judge_rejects_malformed_http_responses(reply: Reply) -> None:
    with pytest.raises((AssertionError, ValueError)):
        judge(REQUEST, reply)
