"""A crawl through all failures: no response reveals internals, no secret is logged."""

import gc
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from apcore import Executor, ModuleAnnotations, ModuleExample
from apcore_a2a_server import Limits, create_app
from apcore_a2a_server.push import PushSettings
from starlette.types import Receive, Scope, Send

from . import leaky
from .checking_client import METHODS, Json
from .conftest import eventually
from .crawling import (
    CREDENTIALS,
    INPUT,
    INTERNAL_ERRORS,
    MARK,
    NOTE,
    PAGES,
    RULES,
    Case,
    Evidence,
    LeakyACL,
    LeakyAuthenticator,
    LeakyRegistry,
    LeakyStore,
    Log,
    Site,
    asks,
    breaks,
    cancels,
    capturing_output,
    executor_of,
    fails_in_background,
    forged_line_in,
    leak_in_answer,
    leak_in_log,
    registers,
    serving_app,
)
from .leaky import ADVICE, MISFITS, NUMBERS, SECRETS, UNSENDABLE, log_injection

SIZE = 100_000
"""The largest body and the largest artifact, in bytes."""


BODIES = [
    INPUT.encode(),
    f'{{"jsonrpc": "2.0", "id": 1, "method": "{INPUT}'.encode(),
    f'{{"{INPUT}": "\xff"}}'.encode("latin-1"),
    f'{{"{INPUT}": "\\ud800"}}'.encode(),
    f'{{"{INPUT}": 1, "{INPUT}": 2}}'.encode(),
    f'{{"{INPUT}": NaN}}'.encode(),
    f'{{"{INPUT}": {"1" * 5000}}}'.encode(),
    f'{"[" * 40_000}"{INPUT}"{"]" * 40_000}'.encode(),
    f'["{INPUT}"]'.encode(),
    f'{{"{INPUT}": "{INPUT}"}}'.encode(),
    INPUT.encode() * SIZE,
]


def bodies(site: Site) -> None:
    """Post bodies that are invalid JSON, invalid requests, or too large."""
    for agent in site.agents:
        for body in BODIES:
            agent.post(body)


def paths_in(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a JSON value."""
    lists = list(enumerate(value)) if isinstance(value, list) else []
    for key, item in value.items() if isinstance(value, dict) else lists:
        yield (key,)
        yield from ((key, *rest) for rest in paths_in(item))


def replaced(value: Any, path: tuple[Any, ...], by: object) -> Any:
    """Return a copy of a JSON value with the value at *path* replaced."""
    copy = holder = deepcopy(value)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = by
    return copy


def wrong_values(site: Site) -> None:
    """Send messages, each with one value replaced."""
    for agent in site.agents:
        configuration: Json = {"acceptedOutputModes": ["text/plain"], "historyLength": 1}
        part = agent.part(data={"note": INPUT})
        members = {"contextId": MARK, "metadata": {INPUT: INPUT}, "extensions": [INPUT]}
        params = {**agent.params("works", part, **members), "configuration": configuration}
        for path in paths_in(params):
            wrong = MARK if path[-1] == "skillId" else INPUT
            for value in (wrong, {wrong: wrong}, [[wrong]], 7):
                agent.ask("send", replaced(params, path, value))


def wrong_operations(site: Site) -> None:
    """Call each operation with the mark in every parameter, and unknown operations and skills."""
    names = ("id", "taskId", "contextId", "pageToken", "cursor", "pageSize", "limit", "status")
    hook = {
        "url": f"https://{MARK}",
        "token": "c0ffee",
        "authentication": {"credentials": "c0ffee"},
    }
    for agent in site.agents:
        for operation in METHODS:
            agent.ask(operation, dict.fromkeys(names, MARK))
            agent.ask(
                operation, {"id": MARK, "taskId": MARK, "pushNotificationConfig": hook, **hook}
            )
        if not agent.restful:
            agent.ask("send", agent.params(), method=MARK)
            agent.ask("send", agent.params(), jsonrpc=MARK)
            agent.ask("send", agent.params(), id=[MARK])
        for skill in (MARK, f"system.{MARK}", MARK * 100, f"{MARK}{log_injection(MARK)}"):
            agent.send(skill)


HOOK = {
    "url": "http://127.0.0.1:9/c0ffee?key=c0ffee",
    "token": "c0ffee",
    "authentication": {"scheme": "Bearer", "schemes": ["Bearer"], "credentials": "c0ffee"},
}


def webhooks(site: Site) -> None:
    """Set an unreachable webhook, and webhooks with one value replaced."""
    for agent in site.agents:
        name = "taskPushNotificationConfig" if agent.modern else "pushNotificationConfig"
        part = agent.part(data={"note": INPUT})
        params = {**agent.params("works", part), "configuration": {name: HOOK}}
        task = agent.ask("send", params).task["id"]
        for path in paths_in(HOOK):
            for value in ("c0ffee", f"http://{{}}c0ffee\r\n{NOTE}", {"c0ffee": "c0ffee"}, [5]):
                wrong = replaced(HOOK, path, value)
                hook = wrong if agent.modern else {"pushNotificationConfig": wrong}
                agent.ask("send", {**params, "configuration": {name: wrong}})
                if path == ("url",):  # values of other fields may be valid and shown to the owner
                    agent.ask("push set", {"taskId": task, **hook})


HEADERS = {
    "Content-Type": f"text/{MARK}",
    "Content-Encoding": MARK,
    "A2A-Version": MARK,
    "A2A-Extensions": MARK,
    "Accept": MARK,
    "Host": "c0ffee",
    "Origin": "https://c0ffee",
    "If-None-Match": MARK,
    "Last-Event-ID": MARK,
    "Traceparent": f"00-{MARK}",
    "Tracestate": MARK,
    "Baggage": f"a={MARK}",
    "X-Forwarded-For": MARK,
    "X-Forwarded-Proto": MARK,
    "Forwarded": MARK,
    "Range": MARK,
    "Cookie": f"c0ffee={NOTE.encode().hex()}",
}


def wrong_headers(site: Site) -> None:
    for name, value in HEADERS.items():
        for agent in site.agents:
            params = agent.params("works")
            request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("send"), "params": params}
            body = params if agent.restful else request
            agent.post(json.dumps(body).encode(), {name: value})
        for page in PAGES:
            site.client.get(page, headers={name: value})
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": MARK}
    for origin in ("https://friend.example", "https://c0ffee"):
        site.client.options("/", headers={"Origin": origin, **preflight})


def wrong_addresses(site: Site) -> None:
    paths = (f"/{MARK}", f"/tasks/{MARK}", f"/tasks/{MARK}:{MARK}", f"/{MARK}/message:send")
    query = dict.fromkeys(("A2A-Version", "historyLength", "pageSize", "access_token"), "c0ffee")
    for verb in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", MARK):
        for path in (*paths, f"/%2e%2e/%2e%2e/{MARK}", f"/%0d%0aX:{MARK}", "/%ff%00", "/", *PAGES):
            site.client.request(verb, path, content=INPUT, params=query)


HEAD = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n" + "".join(
    f"{name}: {value}\r\n" for name, value in CREDENTIALS.items()
)
RAW = [
    f"{MARK}\r\n\r\n",
    f"\x16\x03\x01{MARK}\r\n\r\n",
    f"GET / {MARK}\r\n{HEAD}\r\n",
    f"GET /{MARK} HTTP/9.9\r\n{HEAD}\r\n",
    f"{MARK} /{MARK} HTTP/1.1\r\n{HEAD}\r\n",
    f"GET http://user:c0ffee@127.0.0.1/{MARK} HTTP/1.1\r\n{HEAD}\r\n",
    f"CONNECT c0ffee:443 HTTP/1.1\r\n{HEAD}\r\n",
    f"GET / HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    f"GET / HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nConnection: upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    *(
        f"POST / HTTP/1.1\r\n{HEAD}{line}\r\n\r\n{MARK}"
        for line in (
            MARK,
            f"Content-Length: {MARK}",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            f"Transfer-Encoding: {MARK}",
            "Transfer-Encoding: chunked",
            f"Expect: {MARK}",
            f"X-{MARK}: {'c0ffee' * 20_000}",
            f"X-Folded: 1\r\n {MARK}",
            f"X-{MARK}: \0\x7f",
            f"X {MARK} : 1",
        )
    ),
]


def wrong_bytes(site: Site) -> None:
    for request in RAW:
        site.send_raw(request.encode("latin-1"))


UNSHOWABLE: dict[str, Any] = {
    "description": leaky.LEDGER,
    "documentation": leaky.LEDGER,
    "input_schema": {"type": "object", "properties": {"a": {"default": leaky.LEDGER}}},
    "output_schema": {"type": leaky.LEDGER},
    "tags": [leaky.LEDGER],
    "examples": [ModuleExample("an example", {"ledger": leaky.LEDGER}, {"ledger": leaky.LEDGER})],
    "annotations": ModuleAnnotations(extra={"ledger": leaky.LEDGER}),
    "display": {"a2a": {"tags": leaky.UnreadableDict(text="")}},
}
"""Attributes of modules with values that cards can't show."""


FAILING_CALLS = ("in_thread", "in_loop", "in_call", "~in_stream")
SELECTED_FAILURES = (
    *("LedgerError", "UnprintableError", "TrapError", "a chain", "groups", "entries", "advice"),
    *("apcore's ACLDeniedError", "apcore's ModuleNotFoundError", "a2a's A2AClientError"),
    *("a2a's InvalidParamsError", "a2a's LimitError"),
)
"""Failures to try in components other than modules; to try all would take too long."""

STORE_METHODS = ("save", "get", "list")
STAGES = ("before", "after", "on_error")

CASES: dict[str, Case] = {
    "times out": Case("plain", asks("in_timeout", "~in_timeout", failure=0), 2),
    "is canceled": Case("plain", cancels),
    "fails in the background": Case("plain", fails_in_background),
    "fails in a callback": Case("plain", asks("in_callback", failure=0)),
    "fails when it is approved": Case("plain", asks("gated", "gated", failure=0, approved=True)),
    "refuses the input": Case("plain", asks("strict", "~strict", amount=NOTE), 0),
    "calls another module with invalid inputs": Case(
        "plain", asks("in_wrong_call", "~in_wrong_call")
    ),
    "gets and returns an invalid date": Case("plain", asks("dated", "~dated", date=NOTE), 0),
    "can't store a canceled task": Case("store", breaks("save_end", 0, cancels)),
    "fails for an authenticated caller": Case("auth", asks(*FAILING_CALLS, failure=0), 4),
    "the authenticator rejects everyone": Case("auth", breaks("none", 0)),
    "the authenticator returns a text": Case("auth", breaks("a text", 0)),
    "a module is skipped": Case(
        "registry", registers(display={"a2a": {"tags": leaky.UnreadableList("?")}}), 0
    ),
    "has an ACL condition that raises": Case("acl", asks("strict", "~strict")),
    "gets odd bodies": Case("odd", bodies, 0),
    "gets wrong values": Case("odd", wrong_values, 0),
    "gets wrong operations": Case("odd", wrong_operations, 0),
    "has webhooks": Case("webhooks", webhooks, 0),
    "gets wrong headers": Case("odd", wrong_headers, 0),
    "gets wrong addresses": Case("odd", wrong_addresses, 0),
    "gets wrong bytes": Case("odd", wrong_bytes, 0),
}
for name, number in NUMBERS.items():
    calls = FAILING_CALLS[1:] if name.startswith(("apcore's", "a foreign")) else FAILING_CALLS
    CASES[f"raises {name}"] = Case("plain", asks(*calls, failure=number), len(calls))
for name in MISFITS:
    CASES[f"returns {name}"] = Case("plain", asks("misfits", "~misfits_in_stream", output=name))
for name in UNSENDABLE:
    CASES[f"returns {name}"] = Case(
        "plain", asks("returns_output", "~streams_output", output=name), 2
    )
for name in ("rejected", "timeout", "pending", "another"):
    CASES[f"decides: {name}"] = Case("approval", asks("gated", "gated", verdict=name))
for name in ("schema", "acl", "module_lookup", "another"):
    CASES[f"validates: {name}"] = Case("duck", asks("works", "~works", verdict=name))
for name in ("input_schema", "output_schema", "annotations", "display", "resources"):
    CASES[f"has a broken {name}"] = Case("registry", registers(name), 1)
for name, value in UNSHOWABLE.items():
    CASES[f"has an unshowable {name}"] = Case("registry", registers(**{name: value}), 0)
for name in SELECTED_FAILURES:
    number = NUMBERS[name]
    act = asks("works", "~works", "~misfits_in_stream", stage="before", failure=number)
    CASES[f"the middleware's before raises {name}"] = Case("middleware", act)
    act = asks("works", "~works", stage="after", failure=number)
    CASES[f"the middleware's after raises {name}"] = Case("middleware", act)
    act = asks("in_loop", "~in_stream", stage="on_error", failure=number)
    CASES[f"the middleware's on_error raises {name}"] = Case("middleware", act, 3)
    CASES[f"the approval handler raises {name}"] = Case(
        "approval", asks("gated", verdict="raises", failure=number)
    )
    CASES[f"the authenticator raises {name}"] = Case("auth", breaks("raises", number))
    for step in ("raises", "passes"):
        act = asks("works", "~works", verdict=step, failure=number)
        CASES[f"the duck executor {step} {name}"] = Case("duck", act)
    CASES[f"the rules raise {name}"] = Case("acl", breaks("async_check_access", number))
    for member in (*STORE_METHODS, "save_end"):
        CASES[f"the store's {member} raises {name}"] = Case("store", breaks(member, number))
    for member in ("list", "get", "get_definition"):
        CASES[f"the registry's {member} raises {name}"] = Case(
            "registry", breaks(member, number), 1
        )


OUTSIDE_PIPELINE = (
    "the duck executor raises",
    "the duck executor passes",
    *(f"the store's {m} raises" for m in STORE_METHODS),
)
IN_PIPELINE = (
    *("raises", "the approval handler raises"),
    *(f"the middleware's {stage} raises" for stage in STAGES),
)
VISIBLE_ERRORS = {
    "advice": (*IN_PIPELINE, *OUTSIDE_PIPELINE, "the registry's get raises"),
    "entries": (*IN_PIPELINE, *OUTSIDE_PIPELINE, "the registry's get raises"),
    "apcore's InvalidInputError": ["raises"],
    "apcore's SchemaValidationError": ["raises"],
    "a2a's InvalidParamsError": OUTSIDE_PIPELINE,  # in its pipeline, apcore wraps it
    "a2a's LimitError": OUTSIDE_PIPELINE,
}
"""For errors whose messages callers may see (without paths and stacks): prefixes of the cases."""

CASES_WITH_ADVICE = {
    f"{prefix} {name}" for name, prefixes in VISIBLE_ERRORS.items() for prefix in prefixes
}
CASES_WITH_ADVICE.add("validates: schema")


@cache
def crawl_server(server: str) -> dict[str, Evidence]:
    """Run all cases of a server and return their evidence."""
    registry, store, authenticator, acl = (
        LeakyRegistry(),
        LeakyStore(),
        LeakyAuthenticator(),
        LeakyACL(RULES),
    )
    for skill, module in leaky.MODULES.items():
        registry.register(skill, module)
    options: dict[str, Json] = {
        "store": {"task_store": store},
        "auth": {"auth": authenticator},
        "acl": {"auth": authenticator},
        "webhooks": {"push_notifications": PushSettings(dev=True, retries=())},
        "odd": {"cors_origins": ["https://friend.example"], "allowed_hosts": ["127.0.0.1"]},
    }
    common: Json = {"metrics": True, "max_body": SIZE, "shutdown_timeout": 0}
    common["limits"] = Limits(max_artifact=SIZE)
    with ExitStack() as stack:
        capture = stack.enter_context(capturing_output())
        executor = executor_of(registry, server, acl)
        if isinstance(executor, Executor):
            stack.enter_context(closing(executor))
        app = create_app(executor, url="http://agent", **common, **options.get(server, {}))
        with serving_app(app) as url:
            components: Json = {"store": store, "auth": authenticator, "acl": acl}
            site = Site(url, capture, components.get(server, registry))
            stack.enter_context(closing(site.client))
            evidence = {
                n: site.visit(case.act) for n, case in CASES.items() if case.server == server
            }
        gc.collect()
        for records, later_records in zip(
            [*evidence.values()][-1].log, capture.take(), strict=True
        ):
            records += later_records  # logged during the shutdown
    return evidence


def evidence_of(name: str) -> Evidence:
    return crawl_server(CASES[name].server)[name]


@pytest.mark.parametrize("name", CASES)
def test_every_failure_is_answered_and_logged_without_secrets(name: str) -> None:
    case, evidence = CASES[name], evidence_of(name)
    assert evidence.fault is None
    assert evidence.secret_count >= case.min_secrets
    assert evidence.answers
    check_answers(name, evidence.answers)
    check_log(evidence.log)
    if case.server == "odd":  # all these cases are errors of the client
        assert not any(" ERROR " in record for record in evidence.log.text)


def check_answers(name: str, answers: list[str]) -> None:
    """Check that the responses of a case show only what clients may see."""
    for answer in answers:
        assert leak_in_answer(answer) is None, answer[:3000]
        assert "+json'" in answer or "/json'" in answer or answer[0] != "5", answer
    assert any(ADVICE in answer for answer in answers) == (name in CASES_WITH_ADVICE)


def check_log(log: Log) -> None:
    """Check that the log of a case has no secrets and no forged lines."""
    for record in log.records:
        assert leak_in_log(record) is None, record
        assert forged_line_in(record) is None, record
        assert "Exception in ASGI" not in record
    assert not log.other_output


@pytest.mark.parametrize("error", ["LedgerError", "a code of its own"])
@pytest.mark.parametrize("skill", [call.strip("~") for call in FAILING_CALLS])
def test_a_failing_module_is_logged_once_with_its_traceback(skill: str, error: str) -> None:
    log = evidence_of(f"raises {error}").log.text
    (record,) = [record for record in log if f"ERROR   Skill failed: {skill} " in record]
    assert record.count("raise failure(inputs)") <= 1  # also if a nested call fails
    assert 'leaky.py", line ' in record


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("a module is skipped", "Skipping module broken: .*author-line"),
        ("decides: another", "Unknown approval status .*another-line"),
        ("raises apcore's ACLDeniedError", "Access denied: .*denied-line"),
    ],
)
def test_messages_without_secrets_are_logged_in_one_line(name: str, pattern: str) -> None:
    assert any(re.search(pattern, record) for record in evidence_of(name).log.text)


async def leaks(scope: Scope, receive: Receive, send: Send) -> None:
    """Leak secrets in every way, as an ASGI application."""
    if scope["type"] == "http":
        headers = [item for item in scope["headers"] if item[0] == b"authorization"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        logging.getLogger("any").warning("It is %s", leaky.issue_secrets())
        print(leaky.issue_secrets(), file=sys.stderr)
        await send({"type": "http.response.body", "body": b""})
        raise leaky.LedgerError(leaky.issue_secrets())


def test_the_crawl_detects_leaks_and_no_logger_can_forge_lines() -> None:
    with capturing_output() as capture, serving_app(leaks) as url:
        site = Site(url, capture)
        with closing(site.client):
            site.client.get("/")
        eventually(lambda: len(capture.json.texts) == 2)
    log = capture.take()
    assert leak_in_answer(site.answers[0]) == "c0ffee"
    assert [leak_in_log(record) for record in log.records] == ["secret-path", None] * 2
    assert [forged_line_in(record) for record in log.records] == [None] * 4
    assert "Exception in ASGI" in log.text[1]
    assert [json.loads(record)["level"] for record in log.json] == ["WARNING", "ERROR"]
    assert "".join(log.other_output).startswith(leaky.PATH)


@pytest.mark.parametrize(
    "text",
    [
        f"00:00:00 INFO    It is{log_injection('any')}",
        "00:00:00 INFO    It is\nTraceback (most recent call last):\nValueError: forged",
        "00:00:00 INFO    It is\x1b[2K",
        "It is",
        '{"message": "It is"}\n{"message": "forged"}\n',
        '{"message": "It is"}\u2028{"message": "forged"}\n',
    ],
)
def test_the_crawl_detects_a_forged_line(text: str) -> None:
    assert forged_line_in(text)


LEAKS = {
    *SECRETS,
    *INTERNAL_ERRORS,
    *CREDENTIALS.values(),
    'File "x"',
    "x.py",
    "site-packages",
    __file__,
}


def test_the_crawl_detects_each_secret_and_each_internal_detail() -> None:
    assert [leak for leak in LEAKS if not leak_in_answer(f"an answer with {leak} in it")] == []
