"""A synchronous client of an agent, in any dialect, that checks every response."""

import builtins
import json
import re
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP

Json = dict[str, Any]

MODERN = {"A2A-Version": "1.0"}
METHODS = {
    "send": ("message/send", "SendMessage"),
    "stream": ("message/stream", "SendStreamingMessage"),
    "get": ("tasks/get", "GetTask"),
    "cancel": ("tasks/cancel", "CancelTask"),
    "list": ("tasks/list", "ListTasks"),
    "subscribe": ("tasks/resubscribe", "SubscribeToTask"),
    "push set": ("tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"),
    "push get": ("tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig"),
    "push list": ("tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs"),
    "push delete": ("tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"),
    "card": ("agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"),
}
"""Each operation's method in 0.3 and in 1.0."""

ROUTES = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{id}"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
    "list": ("GET", "/tasks"),
    "subscribe": ("POST", "/tasks/{id}:subscribe"),
    "push set": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "push get": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "push list": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "push delete": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "card": ("GET", "/extendedAgentCard"),
}
"""Each operation's verb and path in HTTP+JSON (A2A 1.0 §11.3)."""

CODES = {
    "PARSE_ERROR": -32700,
    "BODY_SIZE": -32600,
    "MODULE_NOT_FOUND": -32601,
    "SCHEMA_VALIDATION_ERROR": -32602,
    "MODULE_TIMEOUT": -32603,
    **{A2A_ERROR_MAPPING[k].reason: c for k, c in JSON_RPC_ERROR_CODE_MAP.items() if c != -32700},
}
"""For each reason in errors of HTTP+JSON, the JSON-RPC code of the same error."""

STATUSES = {CODES[mapping.reason]: mapping.http_code for mapping in A2A_ERROR_MAPPING.values()} | {
    -32700: 400,
}

BUILTIN_EXCEPTIONS = [
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and name != "ModuleNotFoundError"
]
LEAK = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/(?:usr|home|work|root|etc|tmp|var)/|\bline \d+, in"
    r"|hunter2|<class|<function|object at 0x|NoneType|\bself\b|apcore_a2a|google\.protobuf|pydantic"
    rf"|\b(?:{'|'.join(BUILTIN_EXCEPTIONS)})\b"
    # messages of Python's own exceptions
    r"|isoformat|out of range|codec can't|too large to convert|should contain only|string argument"
    r"|recursion|Expecting|Exceeds the limit|unhashable|not subscriptable|invalid literal"
)
"""Text that only operators may see."""


def check_no_leaks(text: str) -> None:
    """Check that a response leaks no internals."""
    leak = LEAK.search(text)
    assert not leak, f"{leak and leak.group()!r} in {text[:1000]}"


@dataclass(frozen=True)
class Answer:
    """A response, with the same properties for every binding."""

    response: httpx.Response
    restful: bool = False

    @property
    def body(self) -> Any:
        return json.loads(self.response.text.removeprefix("data: "))

    @property
    def is_json(self) -> bool:
        """Whether the body is one JSON value, or the only event of a refused stream of 0.3."""
        is_refused_stream = re.match(
            r'data: \{"jsonrpc":"2.0","id":[^{}]*,"error"', self.response.text
        )
        content_type = self.response.headers["content-type"]
        return bool(is_refused_stream) or content_type.startswith("application/")

    @property
    def error(self) -> Json | None:
        return self.body.get("error") if self.is_json else None

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def is_too_large(self) -> bool:
        """Whether the request was refused before it was parsed, for its bytes or its values."""
        return self.status == 413 and self.code == -32600

    @property
    def code(self) -> int | None:
        """The JSON-RPC code of the error, or None when there is none."""
        if self.error is None:
            return None
        code: int = self.error["code"]
        return CODES[self.error["details"][0]["reason"]] if self.restful else code

    @property
    def message(self) -> str:
        """The message of the error; empty when there is none."""
        return str(self.error["message"]) if self.error else ""

    @property
    def details(self) -> Any:
        """The details of the error, of JSON-RPC or of HTTP+JSON."""
        assert self.error is not None
        return self.error["details" if self.restful else "data"]

    @property
    def fields(self) -> list[str]:
        """The names of the invalid fields."""
        if isinstance(self.details, dict):
            return [entry["field"] for entry in self.details.get("errors", ())]
        return [
            entry["field"] for detail in self.details for entry in detail.get("fieldViolations", ())
        ]

    @property
    def result(self) -> Any:
        assert self.error is None, self.error
        return self.body if self.restful else self.body["result"]

    @property
    def task(self) -> Json:
        task: Json = self.result.get("task") or self.result
        return task

    @property
    def state(self) -> str:
        return state_of(self.task)

    @property
    def events(self) -> list[Json]:
        """The content of each event of a stream."""
        lines = self.response.text.splitlines()
        events = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
        return [event if self.restful else event["result"] for event in events]

    @property
    def task_id(self) -> str:
        """The id of the task that a stream begins with."""
        task = self.events[0].get("task") or self.events[0]
        task_id: str = task["id"]
        return task_id

    @property
    def data(self) -> Any:
        """The data of the first part of the task's first artifact."""
        return self.task["artifacts"][0]["parts"][0]["data"]

    def check(self) -> None:
        """Check the invariants of every response."""
        check_no_leaks(self.response.text)
        if self.restful or not self.is_json:
            statuses = {STATUSES[self.code], 415 if self.code == -32005 else 0} if self.code else ()
            assert self.code is None or self.is_too_large or self.status in statuses
            return
        assert self.body["jsonrpc"] == "2.0"
        assert set(self.body) == {"jsonrpc", "id", "error" if self.error else "result"}
        if self.error:
            assert isinstance(self.error["code"], int)
            assert isinstance(self.error["message"], str)


def state_of(task: Json) -> str:
    """Return the state of a task or of a status event, as 0.3 spells it."""
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


class Agent:
    """A client of an agent in one dialect: "0.3", "1.0" (both JSON-RPC) or "REST"."""

    def __init__(self, client: httpx.Client, dialect: str) -> None:
        self.client = client
        self.dialect = dialect
        self.restful = dialect == "REST"
        self.modern = dialect != "0.3"
        self.headers = MODERN if dialect == "1.0" else {}

    def ask(self, operation: str, params: Any = None, **envelope: Any) -> Answer:
        """Call an operation; *envelope* replaces members of a JSON-RPC request."""
        if self.restful:
            return self._ask_rest(operation, params or {})
        request = {"jsonrpc": "2.0", "id": 1, "method": self.method(operation), "params": params}
        return self.post(json.dumps({**request, **envelope}).encode())

    def post(self, body: bytes, headers: Json | None = None, path: str = "") -> Answer:
        """Post *body* unchanged."""
        path = path or ("/message:send" if self.restful else "/")
        all_headers = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        return self.request("POST", path, content=body, headers=all_headers)

    def request(self, verb: str, path: str, **options: Any) -> Answer:
        """Send an HTTP request and check its response."""
        answer = Answer(self.client.request(verb, path, **options), self.restful)
        answer.check()
        return answer

    def method(self, operation: str) -> str:
        return METHODS[operation][self.modern]

    def part(self, **content: Any) -> Json:
        """Return a part with text, data, or the base64 of a file."""
        (kind,) = content
        if self.modern:
            return content
        return (
            {"kind": "file", "file": {"bytes": content[kind]}}
            if kind == "raw"
            else {
                "kind": kind,
                **content,
            }
        )

    def params(self, skill: Any = "echo", *parts: Any, **members: Any) -> Json:
        """Return the params of a send; *members* are added to the message."""
        message = {
            "messageId": "m1",
            "role": "ROLE_USER" if self.modern else "user",
            "parts": list(parts) or [self.part(text="hello")],
            **({} if self.modern else {"kind": "message"}),
            **members,
        }
        return {"message": message, "metadata": {"skillId": skill}}

    def send(self, skill: Any = "echo", *parts: Any, **members: Any) -> Answer:
        """Send a message and wait for its task."""
        return self.ask("send", self.params(skill, *parts, **members))

    def stream(self, skill: Any = "echo", *parts: Any, **members: Any) -> Answer:
        """Send a message and read its stream to the end."""
        return self.ask("stream", self.params(skill, *parts, **members))

    def start(self, skill: str = "slow", **members: Any) -> Json:
        """Send a message and return its task without waiting for its end."""
        params = self.params(skill, **members)
        options = {"returnImmediately": True} if self.modern else {"blocking": False}
        return self.ask("send", {**params, "configuration": options}).task

    def _ask_rest(self, operation: str, params: Json) -> Answer:
        verb, path = ROUTES[operation]
        remaining = {name: item for name, item in params.items() if f"{{{name}}}" not in path}
        path = path.format(**params)
        if verb == "POST":
            return self.post(json.dumps(remaining).encode(), path=path)
        query = {k: v if isinstance(v, str) else json.dumps(v) for k, v in remaining.items()}
        return self.request(verb, path, params=query)
