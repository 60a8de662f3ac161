"""A crawler that records all answers and logs of a server, and searches the records for leaks."""

import gc
import io
import json
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from apcore import ACL, ACLRule, Executor, Identity, Registry
from apcore_a2a_core.states import TERMINAL
from apcore_a2a_server.middleware.logs import CHATTY_LIBRARIES, HIDDEN, set_up_logging
from apcore_a2a_server.store import TaskRecord

from tests.serving import PATIENCE, running

from . import leaky
from .checking_client import LEAK, Agent, Answer, Json
from .conftest import eventually
from .inloop import DIALECTS, ActionModule
from .leaky import FAILURES, FRAGMENTS, OUTPUT, log_injection
from .test_custom_stores import DictStore

INPUT = "input-5ec4e7"
"""Marks a client's inputs for modules; they must not be logged."""

NOTE = f"{INPUT}{log_injection(INPUT)}"
MARK = "request-5ec4e7"
"""Marks other data from clients, such as paths; it may be logged."""

CREDENTIALS = {
    "Authorization": "Bearer bearer-c0ffee",
    "Proxy-Authorization": "Basic basic-c0ffee",
    "X-API-Key": "apikey-c0ffee",
    "Cookie": "session=cookie-c0ffee",
}
"""The headers of every request."""

PUBLIC_ERRORS = {
    *("CallDepthExceededError", "CallFrequencyExceededError", "CircularCallError"),
    *("InternalError", "InvalidInputError", "InvalidParamsError", "ModuleExecuteError"),
    *("ModuleNotFoundError", "ModuleTimeoutError", "OutputError", "SchemaValidationError"),
    *("TaskNotFoundError", "ApprovalDeniedError", "ApprovalTimeoutError", "LimitError"),
}
"""The error types that clients may see (SRS §3.7, A2A 1.0 §3.3), and one that a user adds."""

ROOT = re.escape(str(Path(__file__).parents[2]))
INTERNAL_ERRORS = {type(failure("?")).__name__ for failure in FAILURES.values()} - PUBLIC_ERRORS
INTERNALS = re.compile(
    rf"{LEAK.pattern}|\b(?:{'|'.join(INTERNAL_ERRORS)})\b|ACL_DENIED|{ROOT}|leaky"
)
METRIC = re.compile(r"\bapcore_a2a_[a-z_]+(?=[ {])")
SECRET = re.compile(rf"{FRAGMENTS}|c0ffee", re.IGNORECASE)
NOT_LOGGED = re.compile(rf"{SECRET.pattern}|{INPUT}|{OUTPUT}", re.IGNORECASE)
FIRST_LINE = re.compile(
    r"\d\d:\d\d:\d\d (?:INFO   |WARNING|ERROR  |CRITICAL) \S[^\x00-\x1f\x7f-\x9f]*"
)
STACK_LINE = re.compile(
    rf"|Traceback \(most recent call last\):|[\w.]+(?:: {re.escape(HIDDEN)})?"
    r"|  File \"[^\"]+\", line \d+, in \S+"
    r"|    .*|  \[Previous line repeated \d+ more times\]"
    r"|The above exception was the direct cause of the following exception:"
)
CARDS = ("/.well-known/agent-card.json", "/agent/authenticatedExtendedCard", "/extendedAgentCard")
PAGES = ("/health", "/metrics", *CARDS)


def leak_in_answer(answer: str) -> str | None:
    """Return the first text in *answer* that clients must not see."""
    leak = INTERNALS.search(METRIC.sub("", answer)) or SECRET.search(answer)
    return leak and leak.group()


def leak_in_log(text: str) -> str | None:
    """Return the first text in a log record that must not be logged."""
    leak = NOT_LOGGED.search(text)
    return leak and leak.group()


def forged_line_in(text: str) -> str | None:
    """Return the first forged line of a log record: one that no logger would write."""
    first, *following = text.splitlines()
    if first.startswith("{"):
        return following[0] if following else None if isinstance(json.loads(first), dict) else first
    if not FIRST_LINE.fullmatch(first):
        return first
    return next(
        (line for line in following if "\x1b" in line or not STACK_LINE.fullmatch(line)), None
    )


class Log(NamedTuple):
    """The log records in both formats, and everything else on stderr."""

    text: list[str]
    json: list[str]
    other_output: list[str]

    @property
    def records(self) -> list[str]:
        """The records in both formats."""
        return self.text + self.json


class LogSink(io.StringIO):
    """A stream that stores each text written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)

    def take(self) -> list[str]:
        """Return the texts written since the last call."""
        texts, self.texts = self.texts, []
        return texts


class OutputCapture:
    """A capture of the output that an operator reads."""

    def __init__(self) -> None:
        self.text, self.json, self.other_output = LogSink(), LogSink(), LogSink()

    def take(self) -> Log:
        """Return the output captured since the last call."""
        return Log(self.text.take(), self.json.take(), self.other_output.take())


def handler_of(log_format: str, sink: LogSink) -> logging.Handler:
    """Return the log handler that `serve` would use, writing to *sink*."""
    logging.root.handlers = []
    set_up_logging("info", log_format)
    (handler,) = logging.root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(sink)
    return handler


@contextmanager
def capturing_output() -> Iterator[OutputCapture]:
    """Capture the log as `serve` writes it, in both formats, and everything else on stderr."""
    capture, root = OutputCapture(), logging.root
    gc.collect()  # before capturing: collected tasks of earlier tests log their failures
    loggers = [root, *map(logging.getLogger, (*CHATTY_LIBRARIES, "httpcore"))]
    levels, handlers = [logger.level for logger in loggers], root.handlers
    try:
        root.handlers = [handler_of("text", capture.text), handler_of("json", capture.json)]
        with redirect_stderr(capture.other_output):
            yield capture
    finally:
        root.handlers = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def serving_app(app: Any) -> Iterator[str]:
    """Serve *app* without uvicorn's own log handlers, as `serve` does."""
    loggers = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.access")]
    with running(app) as url:
        original_handlers = [logger.handlers for logger in loggers]
        try:
            for logger in loggers:
                logger.handlers, logger.propagate = [], True
            yield url
        finally:
            for logger, handlers in zip(loggers, original_handlers, strict=True):
                logger.handlers, logger.propagate = handlers, False


@dataclass
class Evidence:
    """All responses and logs of a case, and the number of secrets it has issued."""

    answers: list[str]
    log: Log
    secret_count: int
    fault: Exception | None


class Crawler(Agent):
    """A client that does not check the responses."""

    def request(self, verb: str, path: str, **options: Any) -> Answer:
        return Answer(self.client.request(verb, path, **options), self.restful)

    def replay(self, task_id: str) -> None:
        """Read a task's events from the first on."""
        request = {"jsonrpc": "2.0", "id": 1, "method": self.method("subscribe")}
        body = {} if self.restful else {**request, "params": {"id": task_id}}
        path = f"/tasks/{task_id}:subscribe" if self.restful else "/"
        self.post(json.dumps(body).encode(), {"Last-Event-ID": "0"}, path)

    def tasks(self, context: str) -> list[Json]:
        """Return the tasks of a context, or none if the agent can't list them."""
        options = {"includeArtifacts": True} if self.modern else {}
        answer = self.ask("list", {"contextId": context, **options})
        refused = not answer.response.is_success or answer.error
        return [] if refused else list(answer.result["tasks"])

    def crawl_task(self, task_id: str) -> None:
        """Get, cancel, subscribe to and replay a task, then send it a message."""
        for operation in ("get", "cancel", "subscribe"):
            self.ask(operation, {"id": task_id})
        self.replay(task_id)
        self.send("works", taskId=task_id)


class Site:
    """A crawled server, and the component of it that can be broken."""

    def __init__(self, url: str, capture: OutputCapture, component: Any = None) -> None:
        hooks: Any = {"response": [self._record]}
        self.url = httpx.URL(url)
        self.client = httpx.Client(
            base_url=url, headers=CREDENTIALS, trust_env=False, timeout=PATIENCE, event_hooks=hooks
        )
        self.agents = [Crawler(self.client, dialect) for dialect in DIALECTS]
        self.component = component
        self.answers: list[str] = []
        self.visits = 0
        self._capture = capture

    def _record(self, response: httpx.Response) -> None:
        response.read()
        head = f"{response.status_code} {response.reason_phrase} {response.headers.raw}"
        self.answers.append(f"{head} {response.content.decode('utf-8', 'replace')}")

    def visit(self, act: Callable[["Site"], object]) -> Evidence:
        """Run a case, then crawl one of its tasks and a page."""
        self.visits += 1
        answers_before, secrets_before = len(self.answers), len(leaky.issued)
        fault = None
        try:
            act(self)
            self.crawl([PAGES[self.visits % len(PAGES)]])
        except httpx.HTTPError as error:
            fault = error
        issued = len(leaky.issued) - secrets_before
        return Evidence(self.answers[answers_before:], self._capture.take(), issued, fault)

    @property
    def context(self) -> str:
        """The context of the case's tasks."""
        return str(self.visits)

    def ask(self, skill: str, operation: str = "send", **inputs: Any) -> None:
        """Call a skill; the dialect changes from case to case."""
        agent = self.agents[self.visits % 3]
        part = agent.part(data={"note": NOTE, **inputs})
        agent.ask(operation, agent.params(skill, part, contextId=self.context))

    def crawl(self, pages: Iterable[str] = PAGES) -> None:
        """List the tasks of the case, crawl one of them, and read *pages*."""
        agent = self.agents[self.visits // 3 % 3]
        if tasks := agent.tasks(self.context):
            agent.crawl_task(tasks[self.visits % len(tasks)]["id"])
        for page in pages:
            self.client.get(page, headers={"Connection": "close"})

    def send_raw(self, data: bytes) -> None:
        """Send raw bytes that httpx would refuse to send."""
        with socket.create_connection((self.url.host, self.url.port), timeout=PATIENCE) as sock:
            sock.sendall(data)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                while answer := sock.recv(2**16):
                    self.answers.append(answer.decode("utf-8", "replace"))


Act = Callable[[Site], object]


class Breakable:
    """A base of objects that fail when one of their members is accessed."""

    broken: tuple[str, int] = ("", 0)
    """The name of this member, and the number of the failure that it raises."""

    def __getattribute__(self, name: str) -> Any:
        member, number = object.__getattribute__(self, "broken")
        if name == member:
            raise leaky.failure({"failure": number})
        return super().__getattribute__(name)


class LeakyModule(Breakable, ActionModule):
    """A module with one attribute that raises."""


class LeakyRegistry(Breakable, Registry):
    """A registry with one method that raises."""


class LeakyStore(Breakable, DictStore):
    """A user's task store with one method that raises; `save` can raise for ended tasks only."""

    async def save(self, record: TaskRecord) -> None:
        if record.task.status.state in TERMINAL:
            self.save_end()
        await super().save(record)

    def save_end(self) -> None:
        """Do nothing; called for tasks that have ended, so that it can be broken."""


class LeakyACL(Breakable, ACL):
    """An ACL with one method that raises."""


class LeakyAuthenticator(Breakable):
    """An authenticator that accepts everyone; broken, it raises, or returns None or a text."""

    def authenticate(self, headers: Json) -> Any:
        member, number = self.broken
        if member == "raises":
            raise leaky.failure({**headers, "failure": number})
        secrets = {"token": leaky.issue_secrets(headers)}
        return {"none": None, "a text": str(secrets)}.get(member, Identity("ada", attrs=secrets))


@dataclass(frozen=True)
class Case:
    """A failing case: its server, its requests, and the least number of secrets it issues."""

    server: str
    act: Act
    min_secrets: int = 1


def asks(*calls: str, **inputs: Any) -> Act:
    """Return an act that calls skills; those named with a tilde are streamed."""

    def act(site: Site) -> None:
        for call in calls:
            site.ask(call.strip("~"), "stream" if call[0] == "~" else "send", **inputs)

    return act


def fails_in_background(site: Site) -> None:
    """Have a module start an asyncio task that fails unobserved."""
    asks("in_background", failure=0)(site)
    gc.collect()


WORKS = asks("works", "~works")


def cancels(site: Site) -> None:
    """Start a task that fails when it is canceled, and cancel it."""
    for agent in site.agents:
        leaky.waiting.clear()
        params = agent.params("in_cancel", agent.part(data={"note": NOTE, "failure": 0}))
        options = {"returnImmediately": True} if agent.modern else {"blocking": False}
        task = agent.ask("send", {**params, "configuration": options}).task
        eventually(lambda: leaky.waiting)
        agent.crawl_task(task["id"])


def breaks(member: str, number: int, use: Act = WORKS) -> Act:
    """Return an act that makes a member of the site's component raise, and crawls the site."""

    def act(site: Site) -> None:
        site.ask("works")
        earlier_task_id = site.agents[0].tasks(site.context)[0]["id"]
        site.component.broken = (member, number)
        try:
            use(site)
            site.ask(f"new_{site.visits}")
            for agent in site.agents:
                agent.crawl_task(earlier_task_id)
            site.crawl()
        finally:
            site.component.broken = ("", 0)

    return act


def registers(broken: str = "", **members: Any) -> Act:
    """Return an act that registers and calls a module with *members* and a *broken* attribute."""

    def act(site: Site) -> None:
        module = LeakyModule(leaky.works, **members)
        site.component.register("broken", module)
        module.broken = (broken, 0)
        try:
            asks("broken", "~broken")(site)
            site.crawl()
        finally:
            module.broken = ("", 0)
            site.component.unregister("broken")

    return act


class Condition:
    """An ACL condition that raises."""

    def evaluate(self, value: Any, context: Any) -> bool:
        raise leaky.LedgerError(leaky.issue_secrets())


ACL.register_condition("leaky", Condition())


RULES = [
    ACLRule(["*"], ["strict"], "allow", conditions={"leaky": {}}),
    ACLRule(["*"], ["works"], "allow"),
]


def executor_of(registry: Any, server: str, acl: ACL) -> Any:
    """Return the executor of a server, with the component that the server is named after."""
    if server == "duck":
        return leaky.DuckExecutor(registry)
    options: dict[str, Json] = {
        "middleware": {"middlewares": [leaky.LeakyMiddleware()]},
        "approval": {"approval_handler": leaky.LeakyApprovalHandler()},
        "acl": {"acl": acl},
    }
    return Executor(registry, **options.get(server, {}))
