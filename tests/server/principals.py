"""Two principals of one agent: one owns tasks, the other sends every request about them."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
from apcore import Identity

from tests.serving import PATIENCE

from .checking_client import MODERN, Agent, Json
from .inloop import NEEDS_APPROVAL, ActionModule, Gate, Peer, registry_of, serving
from .modules import Inputs

TASK, CONTEXT, SKILL, TOKEN = "{task}", "{context}", "{skill}", "{token}"
"""Placeholders in probes for a task, its context, its skill, and a page token."""

ISSUER = "https://one.example.com"
ADA = {"x-name": "ada", "x-issuer": ISSUER}
STRANGERS = {
    "another name": {"x-name": "eve", "x-issuer": ISSUER},
    "another issuer": {"x-name": "ada", "x-issuer": "https://other.example.com"},
    "no issuer": {"x-name": "ada"},
}
DIARY = "what only ada may read"
STATES = {
    "working": ("recall", "wait"),
    "paused for input": ("recall", "ask"),
    "paused for approval": ("guarded", "hello"),
    "completed": ("recall", "hello"),
}
"""For each state, the skill and the text that bring a task into it."""


class HeaderAuth:
    """An authenticator that trusts the headers of requests."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        issuer, name = headers.get("x-issuer"), headers.get("x-name")
        return Identity(name, attrs={"iss": issuer} if issuer else {}) if name else None


class RecallAction:
    """An action that returns the conversation so far; on request it waits or asks for input."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        if inputs["text"] == "wait":
            await self.gate(inputs, context)
        if inputs["text"] == "ask":
            context.services.ask("And then?", field="text")
        history = context.services.history
        return {"heard": [message["parts"][0].get("text") for message in history]}


def modules() -> dict[str, object]:
    """Return the modules that the tasks of `STATES` need, with a gate of their own."""
    recalls = RecallAction()
    return {
        "recall": ActionModule(recalls),
        "guarded": ActionModule(recalls, annotations=NEEDS_APPROVAL),
    }


class Subject(NamedTuple):
    """The target of a probe: a task, its context, its skill, and a page token."""

    task: str
    context: str
    skill: str
    token: str

    def unknown(self) -> "Subject":
        """Return a subject of the same kind that does not exist."""
        token = "1" if self.token.isdigit() else str(uuid4())
        return Subject(str(uuid4()), str(uuid4()), self.skill, token)

    def fill_in(self, text: str) -> str:
        for name, value in self._asdict().items():
            text = text.replace(f"{{{name}}}", value)
        return text


class Probe(NamedTuple):
    """A request with placeholders for its subject."""

    verb: str
    path: str
    params: Json
    method: str
    headers: Json

    def about(self, subject: Subject) -> Json:
        """Return the arguments of `httpx.Client.request` that probe *subject*."""
        params: Json = json.loads(subject.fill_in(json.dumps(self.params)))
        request: Json = {"method": self.verb, "url": subject.fill_in(self.path)}
        if self.method:
            body = {"jsonrpc": "2.0", "id": 1, "method": self.method, "params": params}
            versions = {} if "/" in self.method else MODERN
            return {**request, "json": body, "headers": {**versions, **self.headers}}
        if self.verb == "POST":
            return {**request, "json": params, "headers": self.headers}
        query = {k: v if isinstance(v, str) else json.dumps(v) for k, v in params.items()}
        return {**request, "params": query, "headers": self.headers}


def message_params(*parts: Json, **members: Any) -> Json:
    message = {"messageId": "m", "role": "user", "parts": parts or [{"text": "yes"}], **members}
    return {"message": message}


APPROVED = {"data": {"approved": True}}
EVES_HOOK = {"url": "https://eve.example.com/hook", "id": "hook"}
ADAS_HOOK = {"url": "http://127.0.0.1:9/ada", "id": "hook", "token": DIARY}
LONG_AGO = "2020-01-01T00:00:00Z"

PARAMS: dict[str, list[Json]] = {
    "send": [
        message_params(taskId=TASK),
        message_params(taskId=TASK, contextId=CONTEXT),
        message_params(APPROVED, taskId=TASK),
        {**message_params(), "taskId": TASK, "contextId": CONTEXT},
        {**message_params(taskId=TASK), "metadata": {"skillId": SKILL}},
        {**message_params(taskId=TASK), "configuration": {"historyLength": 9, "blocking": False}},
        {**message_params(taskId=TASK), "configuration": {"pushNotificationConfig": EVES_HOOK}},
        message_params(contextId=CONTEXT),
        message_params(contextId=CONTEXT, referenceTaskIds=[TASK]),
        {**message_params(contextId=CONTEXT), "metadata": {"skillId": SKILL}},
        {**message_params(contextId=CONTEXT), "configuration": {"historyLength": 9}},
        {
            **message_params({"text": "hello"}, APPROVED, contextId=CONTEXT),
            "metadata": {"skillId": SKILL},
        },
        {**message_params(referenceTaskIds=[TASK]), "tenant": TASK},
    ],
    "get": [
        {"id": TASK},
        {"id": TASK, "historyLength": 0},
        {"taskId": TASK, "historyLength": 9},
    ],
    "cancel": [{"id": TASK}, {"taskId": TASK, "metadata": {"skillId": SKILL}}],
    "list": [
        {"contextId": CONTEXT},
        {"contextId": CONTEXT, "includeArtifacts": True, "historyLength": 9},
        {"contextId": CONTEXT, "statusTimestampAfter": LONG_AGO, "pageSize": 1},
        {"contextId": CONTEXT, "status": "completed"},
        {"contextId": CONTEXT, "status": "input-required"},
        {"contextId": CONTEXT, "status": "working", "tenant": CONTEXT},
        {"contextId": CONTEXT, "pageToken": TOKEN},
        {"pageToken": TOKEN},
        {"statusTimestampAfter": LONG_AGO, "pageSize": 100},
    ],
    "subscribe": [{"id": TASK}, {"taskId": TASK}],
    "push": [
        {"taskId": TASK, "id": "hook"},
        {"taskId": TASK, "pushNotificationConfig": EVES_HOOK},
        {"taskId": TASK, **EVES_HOOK},
        {"taskId": TASK, "url": "http://10.0.0.1/", "id": "hook"},
        {"id": TASK, "pushNotificationConfigId": "hook"},
        {"taskId": TASK},
    ],
    "card": [{}, {"tenant": TASK, "id": TASK}, {"tenant": "memory"}],
}
"""The params to try in each operation."""

RESUME_HEADERS = [{}, {"Last-Event-ID": "0"}, {"Last-Event-ID": "1"}, {"Last-Event-ID": "999"}]
METHODS = {
    "send": "SendMessage message/send SendStreamingMessage message/stream",
    "get": "GetTask tasks/get",
    "cancel": "CancelTask tasks/cancel",
    "list": "ListTasks tasks/list",
    "subscribe": "SubscribeToTask tasks/resubscribe",
    "push": " ".join(
        f"{verb}TaskPushNotificationConfig{plural} tasks/pushNotificationConfig/{old_verb}"
        for verb, plural, old_verb in (
            ("Create", "", "set"),
            ("Get", "", "get"),
            ("List", "s", "list"),
            ("Delete", "", "delete"),
        )
    ),
    "card": "GetExtendedAgentCard agent/getAuthenticatedExtendedCard agentCard/get",
}
HOOKS_PATH = f"/tasks/{TASK}/pushNotificationConfigs"
ROUTES = {
    "send": ["POST /message:send", "POST /message:stream"],
    "get": [f"GET /tasks/{TASK}"],
    "cancel": [f"POST /tasks/{TASK}:cancel"],
    "list": ["GET /tasks"],
    "subscribe": [f"POST /tasks/{TASK}:subscribe", f"GET /tasks/{TASK}:subscribe"],
    "push": [
        f"POST {HOOKS_PATH}",
        f"GET {HOOKS_PATH}",
        f"GET {HOOKS_PATH}/hook",
        f"DELETE {HOOKS_PATH}/hook",
    ],
    "card": ["GET /extendedAgentCard"],
}


ROUTES_03 = {
    **{name: [route.replace(" /", " /v1/") for route in routes] for name, routes in ROUTES.items()},
    "card": ["GET /v1/card"],
}
TENANTS = {"memory": "recall"}
"""The tenants of the probed agent."""


def probes(operation: str) -> Iterator[Probe]:
    """Yield the probes of an operation in each dialect, some of the REST paths with a tenant."""
    header_sets = RESUME_HEADERS if operation == "subscribe" else [{}]
    prefixes = cycle(["", "/memory", "/unknown"])
    for params, tenant in zip(PARAMS[operation], prefixes, strict=False):
        for headers in header_sets:
            for method in METHODS[operation].split():
                yield Probe("POST", "/", params, method, headers)
            for route in (*ROUTES[operation], *ROUTES_03[operation]):
                verb, path = route.split()
                remaining = {k: v for k, v in params.items() if k not in ("id", "taskId")}
                sent_params = params if operation == "send" else remaining
                yield Probe(verb, tenant + path, sent_params, "", headers)


IDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


class NormalizedResponse(NamedTuple):
    """A response in a comparable form: ids and times are replaced."""

    status: int
    headers: list[tuple[str, str]]
    body: str

    @classmethod
    def of(cls, response: httpx.Response) -> "NormalizedResponse":
        numbers: dict[str, str] = {}
        body = TIMES.sub("<time>", response.text)
        body = IDS.sub(lambda match: numbers.setdefault(match[0], f"<{len(numbers)}>"), body)
        comparable_headers = response.headers.copy()
        del comparable_headers["date"]
        if "content-length" in comparable_headers:
            assert int(comparable_headers.pop("content-length")) == len(response.content)
        return cls(response.status_code, comparable_headers.multi_items(), body)


class Owner:
    """Ada, who has a task in each state and can take snapshots of it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self._agent = Agent(client, "1.0")
        tasks = {state: self._begin(skill, text) for state, (skill, text) in STATES.items()}
        token = self._agent.ask("list", {"pageSize": 1}).result["nextPageToken"]
        self.subjects = {
            state: Subject(task["id"], task["contextId"], task["metadata"]["skillId"], token)
            for state, task in tasks.items()
        }
        for subject in self.subjects.values():
            hook = self._agent.ask("push set", {"taskId": subject.task, **ADAS_HOOK})
            assert hook.code in (None, -32003)
        self.secrets = {DIARY, *IDS.findall(json.dumps(tasks))}
        """Texts that strangers must not learn."""

    def _begin(self, skill: str, text: str) -> Json:
        params = self._agent.params(skill, {"text": text}, {"text": DIARY})
        options = {"returnImmediately": text == "wait"}
        return self._agent.ask("send", {**params, "configuration": options}).task

    def snapshot(self, state: str) -> list[Any]:
        """Return her task in *state*, all tasks of its context, and its webhooks."""
        subject = self.subjects[state]
        task = self._agent.ask("get", {"id": subject.task}).task
        listed = self._agent.ask("list", {"contextId": subject.context}).result
        hooks = self._agent.ask("push list", {"taskId": subject.task}).body
        return [task, {**listed, "nextPageToken": ""}, hooks]

    def leaks_in(self, response: httpx.Response) -> set[str]:
        """Return her secrets in a stranger's response that were not in the request."""
        request = response.request
        request_text = str(request.url) + request.content.decode()
        return {secret for secret in self.secrets if secret in response.text} - {
            secret for secret in self.secrets if secret in request_text
        }


class ProbedServer:
    """A real server with ada's tasks, and strangers who probe them."""

    def __init__(self, url: str, owner: Owner, stranger: str) -> None:
        self.url = url
        self.owner = owner
        self._stranger = stranger

    @contextmanager
    def stranger(self) -> Iterator[httpx.Client]:
        """Yield a client of a principal that is new to the server."""
        new = f"{uuid4().hex}.example.com"
        changes = {
            "another name": {"x-name": new},
            "another issuer": {"x-issuer": f"https://{new}"},
        }
        headers = {**ADA, **changes[self._stranger]}
        with httpx.Client(base_url=self.url, headers=headers, trust_env=False) as client:
            yield client


@asynccontextmanager
async def acting_as(peer: Peer, headers: Json) -> AsyncIterator[Peer]:
    """Yield a client of the same agent that acts as the principal of *headers*."""
    url = peer.client.base_url
    async with httpx.AsyncClient(
        base_url=url, headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        yield Peer(peer.app, client, peer.dialect)


@asynccontextmanager
async def ada_and_stranger(
    source: dict[str, object], dialect: str, stranger: str, **options: Any
) -> AsyncIterator[tuple[Peer, Peer]]:
    """Serve an agent in this event loop and yield clients of ada and of a stranger."""
    async with (
        serving(registry_of(source), dialect, auth=HeaderAuth(), **options) as peer,
        acting_as(peer, ADA) as ada,
        acting_as(peer, STRANGERS[stranger]) as intruder,
    ):
        yield ada, intruder
