"""Asks an agent in each of the ways it speaks, and looks every answer over."""

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
    "MODULE_NOT_FOUND": -32601,
    "SCHEMA_VALIDATION_ERROR": -32602,
    **{A2A_ERROR_MAPPING[k].reason: c for k, c in JSON_RPC_ERROR_CODE_MAP.items() if c != -32700},
}
"""The JSON-RPC code of the reason that HTTP+JSON gives instead."""

STATUSES = {CODES[mapping.reason]: mapping.http_code for mapping in A2A_ERROR_MAPPING.values()} | {
    -32700: 400
}

BUILTINS = [
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and name != "ModuleNotFoundError"
]
LEAK = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/(?:usr|home|work|root|etc|tmp|var)/|\bline \d+, in"
    r"|hunter2|<class|<function|object at 0x|NoneType|\bself\b|apcore_a2a|google\.protobuf|pydantic"
    rf"|\b(?:{'|'.join(BUILTINS)})\b"
    # what Python says when it does not like a value
    r"|isoformat|out of range|codec can't|too large to convert|should contain only|string argument"
    r"|recursion|Expecting|Exceeds the limit|unhashable|not subscriptable|invalid literal"
)
"""What is only for the eyes of the operator."""


def look_over(text: str) -> None:
    """Hold an answer against what no answer may tell."""
    found = LEAK.search(text)
    assert not found, f"{found and found.group()!r} in {text[:1000]}"


@dataclass(frozen=True)
class Answer:
    """What came back, whichever way it was asked."""

    response: httpx.Response
    restful: bool = False

    @property
    def body(self) -> Any:
        return self.response.json()

    @property
    def is_json(self) -> bool:
        return self.response.headers["content-type"].startswith("application/")

    @property
    def error(self) -> Json | None:
        return self.body.get("error") if self.is_json else None

    @property
    def code(self) -> int | None:
        """The JSON-RPC code of the error, or None when there is none."""
        if self.error is None:
            return None
        code: int = self.error["code"]
        return CODES[self.error["details"][0]["reason"]] if self.restful else code

    @property
    def details(self) -> Any:
        """What the error has to say beside its code, in either form."""
        assert self.error is not None
        return self.error["details" if self.restful else "data"]

    @property
    def fields(self) -> list[str]:
        """The fields that are named as wrong."""
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
        found: Json = self.result.get("task") or self.result
        return found

    @property
    def state(self) -> str:
        return state_of(self.task)

    @property
    def events(self) -> list[Json]:
        """What each event of a stream has in it."""
        lines = self.response.text.splitlines()
        found = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
        return [one if self.restful else one["result"] for one in found]

    @property
    def task_id(self) -> str:
        """The id of the task that a stream begins with."""
        task = self.events[0].get("task") or self.events[0]
        found: str = task["id"]
        return found

    @property
    def data(self) -> Any:
        """The content of the first part of the task's artifact."""
        return self.task["artifacts"][0]["parts"][0]["data"]

    def check(self) -> None:
        """What holds for every answer."""
        look_over(self.response.text)
        if self.restful or not self.is_json:
            assert self.code is None or self.response.status_code == STATUSES[self.code]
            return
        assert self.body["jsonrpc"] == "2.0"
        assert set(self.body) == {"jsonrpc", "id", "error" if self.error else "result"}
        if self.error:
            assert isinstance(self.error["code"], int)
            assert isinstance(self.error["message"], str)


def state_of(task: Json) -> str:
    """The state of a task, or of an event of its status."""
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


class Agent:
    """An agent, asked in one way: "0.3", "1.0" (both JSON-RPC) or "REST"."""

    def __init__(self, client: httpx.Client, way: str) -> None:
        self.client = client
        self.way = way
        self.restful = way == "REST"
        self.modern = way != "0.3"
        self.headers = MODERN if way == "1.0" else {}

    def ask(self, operation: str, params: Any = None, **envelope: Any) -> Answer:
        """Ask for an operation; *envelope* has its say about the JSON-RPC request."""
        if self.restful:
            return self._ask_rest(operation, params or {})
        request = {"jsonrpc": "2.0", "id": 1, "method": self.method(operation), "params": params}
        return self.post(json.dumps({**request, **envelope}).encode())

    def post(self, body: bytes, headers: Json | None = None, path: str = "") -> Answer:
        """Send *body* as it is."""
        path = path or ("/message:send" if self.restful else "/")
        sent = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        return self.request("POST", path, content=body, headers=sent)

    def request(self, verb: str, path: str, **options: Any) -> Answer:
        """The answer to one HTTP request, which tells nothing that it should not."""
        answer = Answer(self.client.request(verb, path, **options), self.restful)
        answer.check()
        return answer

    def method(self, operation: str) -> str:
        return METHODS[operation][self.modern]

    def part(self, **content: Any) -> Json:
        """A part with text, data, or the base64 of a file."""
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
        """The params of a send; *members* are the message's."""
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
        """Send a message and do not wait: the task as it is."""
        params = self.params(skill, **members)
        wish = {"returnImmediately": True} if self.modern else {"blocking": False}
        return self.ask("send", {**params, "configuration": wish}).task

    def _ask_rest(self, operation: str, params: Json) -> Answer:
        verb, path = ROUTES[operation]
        rest = {name: item for name, item in params.items() if f"{{{name}}}" not in path}
        path = path.format(**params)
        if verb == "POST":
            return self.post(json.dumps(rest).encode(), path=path)
        query = {k: v if isinstance(v, str) else json.dumps(v) for k, v in rest.items()}
        return self.request(verb, path, params=query)
