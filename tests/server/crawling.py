"""Crawls a server: hears all that it answers and logs, and finds what should not be there."""

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
from apcore_a2a_server.middleware.logs import CHATTY, set_up_logging
from apcore_a2a_server.store import TaskRecord

from tests.serving import PATIENCE, running

from . import leaky
from .asking import LEAK, Agent, Answer, Json
from .conftest import eventually
from .inloop import WAYS, Does
from .leaky import FAILURES, FRAGMENTS, OUTPUT, forging
from .test_custom_stores import DictStore

INPUT = "input-5ec4e7"
"""What a client sends for a module: it is in no line of the log."""

NOTE = f"{INPUT}{forging(INPUT)}"
MARK = "request-5ec4e7"
"""What a client sends elsewhere, as in a path: a line of the log may tell of it."""

CREDENTIALS = {
    "Authorization": "Bearer bearer-c0ffee",
    "Proxy-Authorization": "Basic basic-c0ffee",
    "X-API-Key": "apikey-c0ffee",
    "Cookie": "session=cookie-c0ffee",
}
"""What every request has with it."""

CONTRACT = {
    *("CallDepthExceededError", "CallFrequencyExceededError", "CircularCallError"),
    *("InternalError", "InvalidInputError", "InvalidParamsError", "ModuleExecuteError"),
    *("ModuleNotFoundError", "ModuleTimeoutError", "OutputError", "SchemaValidationError"),
    *("TaskNotFoundError", "ApprovalDeniedError", "ApprovalTimeoutError", "LimitError"),
}
"""The types that errors name to clients (SRS §3.7, A2A 1.0 §3.3), and one that a user adds."""

ROOT = re.escape(str(Path(__file__).parents[2]))
OWN = {type(failure("?")).__name__ for failure in FAILURES.values()} - CONTRACT
INSIDE = re.compile(rf"{LEAK.pattern}|\b(?:{'|'.join(OWN)})\b|ACL_DENIED|{ROOT}|leaky")
METRIC = re.compile(r"\bapcore_a2a_[a-z_]+(?=[ {])")
UNTOLD = re.compile(rf"{FRAGMENTS}|c0ffee", re.IGNORECASE)
UNLOGGED = re.compile(rf"{UNTOLD.pattern}|{INPUT}|{OUTPUT}", re.IGNORECASE)
BEGIN = re.compile(r"\d\d:\d\d:\d\d (?:INFO   |WARNING|ERROR  |CRITICAL) \S[^\x00-\x1f\x7f-\x9f]*")
STACK = re.compile(
    r"|Traceback \(most recent call last\):|[\w.]+|  File \"[^\"]+\", line \d+, in \S+"
    r"|    .*|  \[Previous line repeated \d+ more times\]"
    r"|The above exception was the direct cause of the following exception:"
)
CARDS = ("/.well-known/agent-card.json", "/agent/authenticatedExtendedCard", "/extendedAgentCard")
PAGES = ("/health", "/metrics", *CARDS)


def told_in(answer: str) -> str | None:
    """What *answer* tells that no client may hear."""
    found = INSIDE.search(METRIC.sub("", answer)) or UNTOLD.search(answer)
    return found and found.group()


def told_by(text: str) -> str | None:
    """What a text of the log tells that no log may hold."""
    found = UNLOGGED.search(text)
    return found and found.group()


def forged_in(text: str) -> str | None:
    """The line of a record's text that no logger writes."""
    first, *rest = text.splitlines()
    if first.startswith("{"):
        return rest[0] if rest else None if isinstance(json.loads(first), dict) else first
    if not BEGIN.fullmatch(first):
        return first
    return next((line for line in rest if "\x1b" in line or not STACK.fullmatch(line)), None)


class Log(NamedTuple):
    """What an operator reads: a text for each record, in both forms, and what is beside them."""

    text: list[str]
    json: list[str]
    beside: list[str]

    @property
    def records(self) -> list[str]:
        """The records in both forms."""
        return self.text + self.json


class Page(io.StringIO):
    """What a handler of the log writes on: keeps each text that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)

    def take(self) -> list[str]:
        """What has been written since this was asked last."""
        taken, self.texts = self.texts, []
        return taken


class Ear:
    """Keeps what an operator reads."""

    def __init__(self) -> None:
        self.text, self.json, self.beside = Page(), Page(), Page()

    def take(self) -> Log:
        """What has been heard since this was asked last."""
        return Log(self.text.take(), self.json.take(), self.beside.take())


def handler_of(form: str, page: Page) -> logging.Handler:
    """The handler that `serve` logs with, writing on *page*."""
    logging.root.handlers = []
    set_up_logging("info", form)
    (handler,) = logging.root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(page)
    return handler


@contextmanager
def hearing() -> Iterator[Ear]:
    """Hear all that is logged, as `serve` logs it, in both its forms, and what is beside that."""
    ear, root = Ear(), logging.root
    gc.collect()  # others' tasks that failed, of which asyncio tells when they are no more
    loggers = [root, *map(logging.getLogger, (*CHATTY, "httpcore"))]
    levels, handlers = [logger.level for logger in loggers], root.handlers
    try:
        root.handlers = [handler_of("text", ear.text), handler_of("json", ear.json)]
        with redirect_stderr(ear.beside):
            yield ear
    finally:
        root.handlers = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve *app* without a log of uvicorn's own, as `serve` does."""
    loggers = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.access")]
    with running(app) as url:
        kept = [logger.handlers for logger in loggers]
        try:
            for logger in loggers:
                logger.handlers, logger.propagate = [], True
            yield url
        finally:
            for logger, handlers in zip(loggers, kept, strict=True):
                logger.handlers, logger.propagate = handlers, False


@dataclass
class Evidence:
    """What came of a case: all that was answered and logged, and how many secrets were said."""

    answers: list[str]
    log: Log
    said: int
    fault: Exception | None


class Crawler(Agent):
    """Asks an agent without a look at its answers."""

    def request(self, verb: str, path: str, **options: Any) -> Answer:
        return Answer(self.client.request(verb, path, **options), self.restful)

    def replay(self, task_id: str) -> None:
        """Read a task's events from the first on."""
        request = {"jsonrpc": "2.0", "id": 1, "method": self.method("subscribe")}
        body = {} if self.restful else {**request, "params": {"id": task_id}}
        path = f"/tasks/{task_id}:subscribe" if self.restful else "/"
        self.post(json.dumps(body).encode(), {"Last-Event-ID": "0"}, path)

    def tasks(self, context: str) -> list[Json]:
        """The tasks of a context, if the agent can list them."""
        wish = {"includeArtifacts": True} if self.modern else {}
        answer = self.ask("list", {"contextId": context, **wish})
        refused = not answer.response.is_success or answer.error
        return [] if refused else list(answer.result["tasks"])

    def look_at(self, task_id: str) -> None:
        """Ask all that can be asked about a task."""
        for operation in ("get", "cancel", "subscribe"):
            self.ask(operation, {"id": task_id})
        self.replay(task_id)
        self.send("works", taskId=task_id)


class Site:
    """A server that is crawled, and the part of it that can be broken."""

    def __init__(self, url: str, ear: Ear, part: Any = None) -> None:
        hooks: Any = {"response": [self._hear]}
        self.url = httpx.URL(url)
        self.client = httpx.Client(
            base_url=url, headers=CREDENTIALS, trust_env=False, timeout=PATIENCE, event_hooks=hooks
        )
        self.agents = [Crawler(self.client, way) for way in WAYS]
        self.part = part
        self.answers: list[str] = []
        self.visits = 0
        self._ear = ear

    def _hear(self, response: httpx.Response) -> None:
        response.read()
        status = f"{response.status_code} {response.reason_phrase} {response.headers.raw}"
        self.answers.append(f"{status} {response.content.decode('utf-8', 'replace')}")

    def visit(self, act: Callable[["Site"], object]) -> Evidence:
        """Do what the case wants, then look at everything again."""
        self.visits += 1
        answers, said = len(self.answers), len(leaky.said)
        fault = None
        try:
            act(self)
            self.look_again([PAGES[self.visits % len(PAGES)]])
        except httpx.HTTPError as error:
            fault = error
        more = len(leaky.said) - said
        return Evidence(self.answers[answers:], self._ear.take(), more, fault)

    @property
    def context(self) -> str:
        """The context of the case's tasks."""
        return str(self.visits)

    def ask(self, skill: str, operation: str = "send", **inputs: Any) -> None:
        """Call a skill in one way, another for each case."""
        agent = self.agents[self.visits % 3]
        part = agent.part(data={"note": NOTE, **inputs})
        agent.ask(operation, agent.params(skill, part, contextId=self.context))

    def look_again(self, pages: Iterable[str] = PAGES) -> None:
        """List the tasks of the case and look at one of them, in one way, and read *pages*."""
        agent = self.agents[self.visits // 3 % 3]
        if tasks := agent.tasks(self.context):
            agent.look_at(tasks[self.visits % len(tasks)]["id"])
        for page in pages:
            self.client.get(page, headers={"Connection": "close"})

    def shout(self, data: bytes) -> None:
        """Send what httpx would not."""
        with socket.create_connection((self.url.host, self.url.port), timeout=PATIENCE) as sock:
            sock.sendall(data)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                while answer := sock.recv(2**16):
                    self.answers.append(answer.decode("utf-8", "replace"))


Act = Callable[[Site], object]


class Breaks:
    """What fails as soon as somebody looks at the one member that is *broken*."""

    broken: tuple[str, int] = ("", 0)

    def __getattribute__(self, name: str) -> Any:
        member, number = object.__getattribute__(self, "broken")
        if name == member:
            raise leaky.failure({"what": number})
        return super().__getattribute__(name)


class Shy(Breaks, Does):
    """A module that can't be looked at."""


class LeakyRegistry(Breaks, Registry):
    """A registry that can't be asked."""


class LeakyStore(Breaks, DictStore):
    """A user's task store that can't be used, or not for tasks that have ended."""

    async def save(self, record: TaskRecord) -> None:
        if record.task.status.state in TERMINAL:
            self.save_end()
        await super().save(record)

    def save_end(self) -> None:
        """Is called for tasks that have ended."""


class LeakyACL(Breaks, ACL):
    """Rules that can't be asked."""


class Porter(Breaks):
    """An authenticator that fails with what it gets, lets nobody in, or takes a text for one."""

    def authenticate(self, headers: Json) -> Any:
        member, number = self.broken
        if member == "raises":
            raise leaky.failure({**headers, "what": number})
        secrets = {"token": leaky.says(headers)}
        return {"nobody": None, "a text": str(secrets)}.get(member, Identity("ada", attrs=secrets))


@dataclass(frozen=True)
class Case:
    """Where something goes wrong, what, and how many secrets are said then at least."""

    server: str
    act: Act
    says: int = 1


def asks(*calls: str, **inputs: Any) -> Act:
    """The act that calls skills; those with a tilde before their names as streams."""

    def act(site: Site) -> None:
        for call in calls:
            site.ask(call.strip("~"), "stream" if call[0] == "~" else "send", **inputs)

    return act


def forgets(site: Site) -> None:
    """Have a module start what fails when nobody waits for it."""
    asks("in_background", what=0)(site)
    gc.collect()


WORKS = asks("works", "~works")


def cancels(site: Site) -> None:
    """Start what fails when it is canceled, and cancel it."""
    for agent in site.agents:
        leaky.waiting.clear()
        params = agent.params("in_cancel", agent.part(data={"note": NOTE, "what": 0}))
        wish = {"returnImmediately": True} if agent.modern else {"blocking": False}
        task = agent.ask("send", {**params, "configuration": wish}).task
        eventually(lambda: leaky.waiting)
        agent.look_at(task["id"])


def breaks(member: str, number: int, then: Act = WORKS) -> Act:
    """The act that breaks a member of the site's part, and does all that may use it."""

    def act(site: Site) -> None:
        site.ask("works")
        before = site.agents[0].tasks(site.context)[0]["id"]
        site.part.broken = (member, number)
        try:
            then(site)
            site.ask(f"new_{site.visits}")
            for agent in site.agents:
                agent.look_at(before)
            site.look_again()
        finally:
            site.part.broken = ("", 0)

    return act


def shows(broken: str = "", **members: Any) -> Act:
    """The act that adds a module with *members*, one of them *broken*, and calls it."""

    def act(site: Site) -> None:
        module = Shy(leaky.works, **members)
        site.part.register("shy", module)
        module.broken = (broken, 0)
        try:
            asks("shy", "~shy")(site)
            site.look_again()
        finally:
            module.broken = ("", 0)
            site.part.unregister("shy")

    return act


class Condition:
    """A condition of an access rule that fails."""

    def evaluate(self, value: Any, context: Any) -> bool:
        raise leaky.LedgerError(leaky.says())


ACL.register_condition("leaky", Condition())


RULES = [
    ACLRule(["*"], ["strict"], "allow", conditions={"leaky": {}}),
    ACLRule(["*"], ["works"], "allow"),
]


def executor_of(registry: Any, server: str, acl: ACL) -> Any:
    """What runs the modules of a server, with what is in its way there."""
    if server == "duck":
        return leaky.Duck(registry)
    options: dict[str, Json] = {
        "meddler": {"middlewares": [leaky.Meddler()]},
        "desk": {"approval_handler": leaky.Desk()},
        "acl": {"acl": acl},
    }
    return Executor(registry, **options.get(server, {}))
