"""Credentials stay at the origin that they were given for."""

from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from apcore_a2a_client import A2AError, APIKey, CredentialsRefusedError

from .raw import (
    KINDS,
    WIRES,
    Client,
    Request,
    Step,
    agent,
    card,
    http_client,
    raw,
    reply,
    rpc,
    task,
)

pytestmark = pytest.mark.rotating("kind", "credentials")

SECRET = "s3cr3t"
kinds = pytest.mark.parametrize("kind", KINDS)
CREDENTIALS: dict[str, dict[str, Any]] = {
    "token": {"auth": SECRET},
    "function": {"auth": lambda: SECRET},
    "basic": {"auth": httpx.BasicAuth("user", SECRET)},
    "key": {"auth": APIKey(SECRET)},
    "headers": {"headers": {"x-own": SECRET}},
}
HTTP_CREDENTIALS: dict[str, dict[str, Any]] = {
    "auth": {"auth": ("user", SECRET)},
    "headers": {"headers": {"x-own": SECRET}},
    "cookies": {"cookies": {"c": SECRET}},
    "params": {"params": {"key": SECRET}},
}


def ok(request: Request) -> Iterable[Step]:
    return reply(task()) if request.method == "GET" else rpc(request, result=task())


def agent_naming(url: str, *wire: str) -> Any:
    """Return a script for an agent whose card names *url*."""
    return agent(ok, **card(url, *wire))


@kinds
@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize(("binding", "version"), WIRES)
def test_credentials_are_not_sent_to_another_port_that_the_card_names(
    kind: str, credentials: str, binding: str, version: str
) -> None:
    with (
        raw(ok) as other_server,
        raw(agent_naming(other_server.url, binding, version)) as server,
        Client(kind, server.url, **CREDENTIALS[credentials]) as client,
    ):
        for operation in ("send_message", "stream_message", "get_task", "cancel_task"):
            with pytest.raises(CredentialsRefusedError) as caught:
                client.do(operation, "t-1")
            assert (caught.value.agent, caught.value.foreign) == (server.url, other_server.url)
            assert server.url in str(caught.value)
            assert other_server.url in str(caught.value)
        assert other_server.connections == 0


@kinds
@pytest.mark.parametrize("credentials", HTTP_CREDENTIALS)
def test_credentials_of_an_httpx_client_are_not_sent_to_another_origin(
    kind: str, credentials: str
) -> None:
    httpx_client = http_client(kind, **HTTP_CREDENTIALS[credentials])
    with (
        raw(ok) as other_server,
        raw(agent_naming(other_server.url)) as server,
        Client(kind, server.url, http_client=httpx_client) as client,
    ):
        with pytest.raises(CredentialsRefusedError):
            client.do("get_task", "t-1")
        assert other_server.connections == 0


@kinds
def test_credentials_set_later_on_an_httpx_client_are_not_sent_to_another_origin(kind: str) -> None:
    httpx_client = http_client(kind)
    with (
        raw(ok) as other_server,
        raw(agent_naming(other_server.url)) as server,
        Client(kind, server.url, http_client=httpx_client) as client,
    ):
        client.do("get_task", "t-1")
        httpx_client.headers["authorization"] = SECRET
        with pytest.raises(CredentialsRefusedError):
            client.do("get_task", "t-1")
        assert len(other_server.requests) == 1


@kinds
def test_without_credentials_a_card_may_name_another_origin(kind: str) -> None:
    with (
        raw(ok) as other_server,
        raw(agent_naming(other_server.url)) as server,
        Client(kind, server.url) as client,
    ):
        assert client.do("get_task", "t-1").id == "t-1"
        assert len(other_server.requests) == 1


@kinds
@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize("suffix", ["", "/"])
def test_credentials_are_sent_to_an_allowed_origin(
    kind: str, credentials: str, suffix: str
) -> None:
    with (
        raw(ok) as other_server,
        raw(agent_naming(f"{other_server.url}/agent")) as server,
        Client(
            kind,
            server.url,
            credentials_for=[other_server.url + suffix],
            **CREDENTIALS[credentials],
        ) as client,
    ):
        assert client.do("get_task", "t-1").id == "t-1"
        sent_headers = str(other_server.requests[0].headers)
    assert SECRET in sent_headers or "Basic" in sent_headers


@kinds
def test_an_interface_at_the_agents_own_origin_is_preferred(kind: str) -> None:
    with raw(ok) as other_server:
        interfaces = [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            for url in (other_server.url, "/here")
        ]
        script = agent(ok, supportedInterfaces=interfaces)
        with raw(script) as server, Client(kind, server.url, auth=SECRET) as client:
            client.do("get_task", "t-1")
            assert [request.path for request in server.calls] == ["/here"]
        assert other_server.connections == 0


@kinds
def test_a_card_that_names_another_origin_can_be_fetched(kind: str) -> None:
    with (
        raw(agent_naming("https://elsewhere.example")) as server,
        Client(kind, server.url, auth=SECRET) as client,
    ):
        assert client.do("get_card").name == "raw"


@kinds
def test_credentials_do_not_follow_a_redirected_card(kind: str) -> None:
    with (
        raw(lambda request: reply(card(f"http://{request.headers['host']}/"))) as other_server,
        raw(lambda _: reply(b"", 302, location=f"{other_server.url}/card")) as server,
        Client(kind, server.url, auth=SECRET) as client,
    ):
        with pytest.raises(CredentialsRefusedError) as caught:
            client.do("send_message", "hi")
        assert caught.value.foreign == other_server.url
        assert [request.path for request in other_server.requests] == ["/card"]
        assert SECRET not in str(other_server.requests)


@kinds
@pytest.mark.parametrize("allowed", [False, True])
def test_a_redirected_get_carries_no_credentials_to_another_origin(
    kind: str, allowed: bool
) -> None:
    def script(request: Request) -> Iterable[Step]:
        return reply(b"", 307, location=f"{other_server.url}/tasks/t-1")

    with (
        raw(ok) as other_server,
        raw(agent(script, **card("/", "HTTP+JSON"))) as server,
        Client(
            kind,
            server.url,
            auth=SECRET,
            headers={"x-own": SECRET},
            credentials_for=[other_server.url] if allowed else [],
        ) as client,
    ):
        client.do("get_task", "t-1")
        assert SECRET in str(server.calls)
        assert SECRET not in str(other_server.requests)


@kinds
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0"])
def test_loopback_hosts_are_one_origin(kind: str, host: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        port = server.url.rpartition(":")[2]
        url = f"http://{host}:{port}/"
        return reply(card(url)) if request.is_card else ok(request)

    with raw(script) as server, Client(kind, server.url, auth=SECRET) as client:
        client.do("get_task", "t-1")
        assert server.calls[0].headers["authorization"] == f"Bearer {SECRET}"


@kinds
@pytest.mark.parametrize(
    "url",
    ["https://agent.example:444/", "http://agent.example/", "https://www.agent.example/", "//b/"],
)
def test_credentials_are_not_sent_to_another_scheme_host_or_port(kind: str, url: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == "GET"
        return httpx.Response(200, json=card(url))

    client_type = httpx.Client if kind == "sync" else httpx.AsyncClient
    http: Any = client_type(transport=httpx.MockTransport(answer), verify=False)
    with (
        Client(kind, "https://agent.example", auth=SECRET, http_client=http) as client,
        pytest.raises(A2AError),
    ):
        client.do("get_task", "t-1")


@kinds
@pytest.mark.parametrize(
    "origin",
    ["", "agent.example", "https://", "https://h/path", "https://h?q", "https://u:s3cr3t@h", None],
)
def test_an_invalid_origin_is_refused_and_not_shown(kind: str, origin: Any) -> None:
    with pytest.raises(ValueError, match="scheme, host and port") as caught:
        Client(kind, "http://127.0.0.1", credentials_for=[origin])
    assert SECRET not in str(caught.value)


@kinds
def test_a_string_instead_of_a_list_of_origins_is_refused(kind: str) -> None:
    with pytest.raises(TypeError, match="list of origins"):
        Client(kind, "http://127.0.0.1", credentials_for="https://agent.example")
