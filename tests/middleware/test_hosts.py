"""Requests for other hosts are refused: DNS rebinding could open local agents to web pages."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.middleware import FrontMiddleware
from starlette.responses import PlainTextResponse

from tests.facade.processes import extensions, free_port, process, serve_command
from tests.server.inloop import ActionModule, echo, registry_of

from .byhand import CARD, Headers, ask, authenticator, connected, request, status_of

LOOPBACK = ["localhost", "127.0.0.1", "::1"]
LOCAL_HOSTS = ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "[::1]"]
OWN_HOST = "agent.example"
FOREIGN_HOSTS = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:127.0.0.1",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost:80:80",
    "localhost:x",
    "localhost, evil.example",
    "localhost/",
    "[::1",
    "[::1]x",
    "[::2]",
    "::1",
    "127.0.0.2",
    "0.0.0.0",
    "localhost..",
    ".localhost",
    "l\xf6calhost",
    "",
    " ",
    ":8000",
]
"""`Host` headers that name another host, or are invalid."""
PATHS = ["/", CARD, "/health", "/metrics", "/explorer", "/message:send", "/tasks", "/nothing"]


async def status_for(*hosts: str, allowed: list[str] | None = None) -> int:
    app = FrontMiddleware(PlainTextResponse("done"), allowed_hosts=allowed or LOOPBACK)
    headers: Headers = [("host", host) for host in hosts]
    return (await ask(app, headers=headers)).status


@pytest.mark.anyio
@pytest.mark.parametrize("port", ["", ":8000", ":1", ":"])
@pytest.mark.parametrize("host", LOCAL_HOSTS)
async def test_a_local_name_is_served_on_any_port(host: str, port: str) -> None:
    assert await status_for(host + port) == 200


@pytest.mark.anyio
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_any_other_name_is_refused(host: str) -> None:
    assert await status_for(host) == 421


@pytest.mark.anyio
async def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    assert await status_for() == 421
    assert await status_for("localhost", "evil.example") == 421
    assert await status_for("evil.example", "localhost") == 421


@pytest.mark.anyio
async def test_a_wildcard_allows_all_subdomains() -> None:
    allowed = ["*.agent.example", "[2001:db8::1]"]
    for host in ("a.agent.example", "a.b.AGENT.example:80", "[2001:db8::1]:8000"):
        assert await status_for(host, allowed=allowed) == 200
    for host in ("agent.example", "evilagent.example", "a.agent.example.evil", "localhost"):
        assert await status_for(host, allowed=allowed) == 421


@pytest.mark.anyio
async def test_the_refusal_names_the_options_in_one_line_and_does_not_repeat_the_host() -> None:
    app = FrontMiddleware(PlainTextResponse("done"), allowed_hosts=["localhost"])
    answer = await ask(app, "POST", headers=[("host", "evil.example\x1b[31m" + "x" * 1000)])
    assert answer.status == 421
    assert b"\n" not in answer.body
    message = answer.json["error"]["message"]
    assert {"--url", "--allowed-hosts"} < {*message.split()}
    assert "evil" not in message


@pytest.mark.parametrize(
    "host", ["agent.example:80", "http://agent.example", "[::1]:80", "", "a b"]
)
def test_an_invalid_allowed_host_is_refused_at_start(host: str) -> None:
    with pytest.raises(OptionError, match="allowed_hosts takes names without a scheme or port"):
        create_app(registry_of({"work": ActionModule(echo)}), allowed_hosts=[host])


@pytest.mark.parametrize("allowed", [None, ["*"], ["agent.example"]])
@pytest.mark.parametrize("has_auth", [False, True])
def test_only_an_agent_with_neither_auth_nor_allowed_hosts_causes_a_warning(
    has_auth: bool, allowed: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    auth = authenticator() if has_auth else None
    create_app(registry_of({"work": ActionModule(echo)}), auth=auth, allowed_hosts=allowed)
    warnings = [record.getMessage() for record in caplog.records if "any_host" in str(vars(record))]
    assert len(warnings) == (not has_auth and allowed is None)
    assert all("allowed_hosts=" in warning for warning in warnings)


@pytest.mark.anyio
async def test_an_application_serves_any_host_unless_allowed_hosts_is_given() -> None:
    for allowed, status in ((None, 200), (["*"], 200), (["agent.example"], 421)):
        app = create_app(registry_of({"work": ActionModule(echo)}), allowed_hosts=allowed)
        assert (await ask(app, path="/health", headers=[("host", "any.example")])).status == status


# A process that listens on the loopback address


@pytest.fixture(scope="module")
def local_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home, port = tmp_path_factory.mktemp("local"), free_port()
    options = {"url": f"https://{OWN_HOST}/agent", "port": port, "metrics": True, "explorer": True}
    with process(serve_command(extensions(home), **options), home) as agent:
        agent.wait_for("(Press Ctrl)")
        yield f"http://127.0.0.1:{port}"


def status_from(url: str, host: str, path: str = "/health", verb: str = "GET") -> int:
    with connected(url) as connection:
        request_bytes = request(path, verb=verb).replace(
            b"Host: x", f"Host: {host}".encode("latin-1")
        )
        connection.send(request_bytes)
        return status_of(connection.read_until())


@pytest.mark.process
def test_a_local_agent_serves_loopback_names_and_the_host_of_its_url(local_agent: str) -> None:
    for host in (
        "localhost",
        "localhost:1",
        "127.0.0.1:8000",
        "[::1]:8000",
        OWN_HOST,
        f"{OWN_HOST}:444",
    ):
        assert status_from(local_agent, host) == 200


@pytest.mark.process
@pytest.mark.parametrize("path", PATHS)
def test_a_local_agent_refuses_rebound_names_on_every_route(local_agent: str, path: str) -> None:
    for verb in ("GET", "POST", "OPTIONS", "HEAD", "DELETE"):
        assert status_from(local_agent, "evil.example:8000", path, verb) == 421


@pytest.mark.process
@pytest.mark.parametrize(
    "options",
    [
        {"allowed_hosts": ["*"]},
        {"allowed_hosts": ["evil.example"]},
        {"host": "0.0.0.0"},
    ],
    ids=json.dumps,
)
def test_other_hosts_are_served_if_they_are_allowed_or_the_agent_is_not_local(
    options: dict[str, object], tmp_path: Path
) -> None:
    with process(serve_command(extensions(tmp_path), **options), tmp_path) as agent:
        assert status_from(agent.url, "evil.example") == 200
