"""Cards and redirects of remote agents that lead into the network of the gateway."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

import httpx
import pytest
from apcore import Executor, Registry
from apcore_a2a_client import Destination, DestinationRefusedError
from apcore_a2a_remote import DestinationRules, RemoteAgent, RemoteFailedError, remote_agents

from tests.client.raw import CLOSE, RawServer, Request, Step, card, raw, reply, rpc, task
from tests.server.inloop import anyio_backend as anyio_backend

from .internet import Internet

pytestmark = pytest.mark.anyio

OUTSIDE, OTHER, INSIDE, HERE = "93.184.215.14", "1.1.1.1", "10.0.0.7", "127.0.0.1"
METADATA = "169.254.169.254"
SKILLS = [{"id": "s", "name": "Skill"}]
AGENT = "http://agent.example"


@asynccontextmanager
async def registered_skill_at(
    *urls: str,
    source: str = OUTSIDE,
    names: Mapping[str, Iterable[str]] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Executor, list[Request]]]:
    """Register the skill of an agent whose card has interfaces at *urls*.

    Args:
        urls: The URLs on the card.
        source: The address of the agent itself.
        names: Addresses of further hosts, by name.
        options: Arguments of the `RemoteAgent`.

    Yields:
        An executor of the skill, and the requests to all hosts but the agent's.
    """
    interfaces = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in urls
    ]
    with (
        raw(lambda _: reply(card("", skills=SKILLS, supportedInterfaces=interfaces))) as agent,
        raw(lambda request: [*rpc(request, result={"task": task()}), CLOSE]) as elsewhere,
    ):
        addresses = (OUTSIDE, OTHER, INSIDE, HERE, "::1", METADATA, "10.0.0.8", "::ffff:10.0.0.7")
        servers = dict.fromkeys(addresses, elsewhere.url) | {source: agent.url}
        names = {"agent.example": repeat(source), "inside.example": repeat(INSIDE), **(names or {})}
        async with Internet(names, servers).client() as http:
            remote = RemoteAgent(AGENT, name="c", http_client=http, **options)
            async with remote:
                registry = Registry()
                await remote.register(registry)
                yield Executor(registry), elsewhere.requests


async def call(executor: Executor) -> Any:
    return await executor.call_async("remote.c.s", {"text": "hello"})


@pytest.mark.parametrize(
    "url",
    [
        f"http://{INSIDE}/",
        f"http://{METADATA}/latest/meta-data",
        f"http://{HERE}:8080/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.7]/",
        "http://inside.example/",
    ],
)
async def test_a_public_agent_does_not_lead_into_the_network_of_the_gateway(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with registered_skill_at(url) as (executor, requests):
        with pytest.raises(RemoteFailedError):
            await call(executor)
        assert requests == []
    assert "DestinationRefusedError" in caplog.text


async def test_a_public_agent_leads_to_other_public_hosts() -> None:
    async with registered_skill_at(f"http://{OTHER}/") as (executor, requests):
        await call(executor)
        assert len(requests) == 1


async def test_an_interface_that_is_allowed_is_used_instead_of_one_that_is_not() -> None:
    urls = f"http://{INSIDE}/", f"http://{OTHER}/"
    async with registered_skill_at(*urls) as (executor, requests):
        await call(executor)
        assert [request.headers["host"] for request in requests] == [OTHER]


async def test_a_name_that_changes_its_address_is_refused_at_the_connection() -> None:
    names = {"rebinding.example": iter([OTHER, INSIDE])}
    url = "http://rebinding.example/"
    async with registered_skill_at(url, names=names, retries=0) as (executor, requests):
        await call(executor)
        requests.clear()
        with pytest.raises(RemoteFailedError):
            await call(executor)  # connects again, since the first connection is closed
        assert requests == []


@pytest.mark.parametrize(
    ("source", "address", "is_allowed"),
    [
        (INSIDE, "10.0.0.8", True),
        (INSIDE, HERE, False),
        (INSIDE, METADATA, False),
        (HERE, INSIDE, True),
        (HERE, METADATA, False),
    ],
)
async def test_an_agent_may_lead_as_far_inside_as_its_own_address_but_not_to_metadata(
    source: str, address: str, is_allowed: bool
) -> None:
    async with registered_skill_at(f"http://{address}/", source=source) as (executor, requests):
        if is_allowed:
            await call(executor)
        else:
            with pytest.raises(RemoteFailedError):
                await call(executor)
        assert len(requests) == is_allowed


@pytest.mark.parametrize("hosts", [["inside.example"], ["*.example"], ["10.0.0.0/8"], ["*"]])
async def test_listed_private_hosts_are_allowed(hosts: list[str]) -> None:
    async with registered_skill_at("http://inside.example/", private_hosts=hosts) as (
        executor,
        requests,
    ):
        await call(executor)
        assert len(requests) == 1


async def test_metadata_services_cannot_be_allowed() -> None:
    async with registered_skill_at(f"http://{METADATA}/", private_hosts=["*"]) as (
        executor,
        requests,
    ):
        with pytest.raises(RemoteFailedError):
            await call(executor)
        assert requests == []


async def test_origins_for_credentials_may_be_private() -> None:
    url = f"http://{INSIDE}:8080"
    async with registered_skill_at(url, credentials_for=[url]) as (executor, requests):
        await call(executor)
        assert len(requests) == 1


@pytest.mark.parametrize("location", [f"http://{INSIDE}/", "http://inside.example/"])
async def test_a_redirect_does_not_lead_into_the_network_of_the_gateway(location: str) -> None:
    with (
        raw(lambda _: reply(status=302, location=location)) as agent,
        raw(lambda _: reply(card("/"))) as inside,
    ):
        names = {"agent.example": repeat(OUTSIDE), "inside.example": repeat(INSIDE)}
        internet = Internet(names, {OUTSIDE: agent.url, INSIDE: inside.url})
        async with internet.client() as http, RemoteAgent(AGENT, name="c", http_client=http) as c:
            with pytest.raises(DestinationRefusedError):
                await c.register(Registry())
        assert inside.requests == []


async def test_a_private_agent_may_be_redirected_inside_its_network() -> None:
    def script(request: Request) -> Iterable[Step]:
        if request.headers["host"] == "agent.example":
            return reply(status=302, location="http://inside.example/card")
        if request.is_card or request.path == "/card":
            return reply(card("http://inside.example/", skills=SKILLS))
        return rpc(request, result={"task": task()})

    with raw(script) as server:
        names = {"agent.example": repeat(INSIDE), "inside.example": repeat("10.0.0.8")}
        internet = Internet(names, {INSIDE: server.url, "10.0.0.8": server.url})
        async with internet.client() as http, RemoteAgent(AGENT, name="c", http_client=http) as c:
            await c.register(Registry())
            assert (await c.send("s", "hello")).status.state == "completed"


@pytest.mark.parametrize(("address", "is_allowed"), [(INSIDE, False), (OTHER, True)])
async def test_behind_a_proxy_addresses_in_urls_are_checked(address: str, is_allowed: bool) -> None:
    """The agent counts as public: its address is unknown, and that of the proxy is ignored."""

    def script(request: Request) -> Iterable[Step]:
        if request.path.endswith("/agent-card.json"):
            return reply(card(f"http://{address}/", skills=SKILLS))
        return rpc(request, result={"task": task()})

    with raw(script) as proxy:
        async with (
            httpx.AsyncClient(proxy=proxy.url) as http,
            RemoteAgent(AGENT, name="c", http_client=http) as remote,
        ):
            registry = Registry()
            await remote.register(registry)
            if is_allowed:
                await call(Executor(registry))
            else:
                with pytest.raises(RemoteFailedError):
                    await call(Executor(registry))
    assert len(posts(proxy)) == is_allowed


def posts(server: RawServer) -> list[Request]:
    return [request for request in server.requests if request.method == "POST"]


def test_private_hosts_in_the_config_file_may_be_one_text_and_are_checked() -> None:
    entry = {"name": "c", "server_url": AGENT, "private_hosts": "10.0.0.0/8"}
    assert remote_agents([entry], expose=False)[0].name == "c"
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        remote_agents([{**entry, "private_hosts": ["10.0.0.0/99"]}], expose=False)


def test_a_host_whose_address_is_not_known_is_not_allowed() -> None:
    assert not DestinationRules(["*"])(Destination("agent.example", "", OUTSIDE))


def test_private_hosts_as_an_argument_must_be_a_list() -> None:
    with pytest.raises(ValueError, match="list"):
        RemoteAgent(AGENT, name="c", private_hosts="10.0.0.0/8")
