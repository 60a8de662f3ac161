"""Connections to webhooks: only to addresses that were checked."""

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpcore
import pytest
import trustme
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.guard import BusyError, Guard, RefusedError
from apcore_a2a_server.push.transport import WebhookResponse, WebhookTransport

from tests.client.raw import (
    CLOSE,
    RawServer,
    Request,
    Script,
    Step,
    TcpServer,
    raw,
    read_request,
    reply,
)
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import listener

from .posting import CA, HERE, NAME, OUTSIDE, FakeResolver, port_of, posting, trusting

pytestmark = pytest.mark.anyio

THERE = "127.0.0.2"


class Canary(TcpServer):
    """Server that never answers; counts its connections and records the received bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.received = b""

    async def handle(self, reader: Any, writer: Any) -> None:
        self.received += await reader.read(2**16)


@contextmanager
def canary(host: str = HERE, port: int = 0) -> Iterator[Canary]:
    """Run a canary; its count of connections is complete after the block."""
    server = Canary()
    with socket.create_server((host, port)) as sock, server.running(sock):
        yield server


def answer_ok(request: Request) -> list[Step]:
    return reply()


def answer_and_close(request: Request) -> list[Step]:
    """Return an answer that closes its connection."""
    return [*reply(connection="close"), CLOSE]


# DNS rebinding


async def test_a_canary_counts_connections() -> None:
    with canary() as canary_server:
        async with posting(FakeResolver([HERE]), dev=True, timeout=0.2) as post:
            await post(f"http://{NAME}:{port_of(canary_server)}/")
    assert canary_server.connections == 1
    assert canary_server.received.startswith(b"POST / HTTP/1.1\r\n")


LATER_ADDRESSES = [
    [HERE],
    [OUTSIDE, HERE],
    [HERE, OUTSIDE],
    ["::ffff:127.0.0.1"],
    ["0.0.0.0"],
    ["::1"],
    [],
]


@pytest.mark.parametrize("later_addresses", LATER_ADDRESSES, ids=" ".join)
async def test_a_name_that_later_resolves_to_an_internal_address_is_not_connected_to(
    later_addresses: list[str],
) -> None:
    with canary() as canary_server:
        resolver = FakeResolver([OUTSIDE], later_addresses)
        settings = PushSettings(ports=[port_of(canary_server)], ssl_context=trusting(CA))
        guard = Guard(settings, resolver)
        transport = WebhookTransport(settings, guard)
        url = f"https://{NAME}:{port_of(canary_server)}/"
        await guard.check(url, "ada")
        for _ in range(3):
            answer = await transport.post(url, [], b"{}", "ada")
            assert (answer.status, answer.is_success) == (0, False)
            assert "not allowed" in answer.reason
        await transport.close()
        with pytest.raises(RefusedError):
            await guard.check(url, "ada")
    assert canary_server.connections == 0
    assert resolver.lookups == [(NAME, port_of(canary_server))] * 5


async def test_a_name_that_cannot_be_resolved_now_is_not_reported_as_forbidden() -> None:
    async def resolve(host: str, port: int, principal: str) -> list[str]:
        raise BusyError

    async with posting(resolve) as post:
        answer = await post(f"https://{NAME}/")
    assert (answer.status, answer.reason) == (0, "its host can't be resolved now")


class FakeSystemResolver:
    """Replacement of `socket.getaddrinfo` that records its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.answers = list(answers)
        self.lookups: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        self.lookups.append(host)
        address = self.answers[min(len(self.lookups), len(self.answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]


async def test_the_name_is_resolved_once_per_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with canary() as canary_server:
        resolver = FakeSystemResolver(monkeypatch, OUTSIDE, HERE)
        url = f"https://{NAME}:{port_of(canary_server)}/"
        await Guard(PushSettings(ports=[port_of(canary_server)])).check(url, "ada")
        async with posting(ports=[port_of(canary_server)]) as post:
            assert (await post(url)).status == 0
    assert canary_server.connections == 0
    assert resolver.lookups == [NAME] * 2


async def test_only_the_guard_resolves_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(answer_ok) as server, canary(THERE, port_of(server)) as canary_server:
        resolver = FakeSystemResolver(monkeypatch, HERE, THERE)
        async with posting(dev=True, allowed_hosts=[NAME]) as post:
            assert (await post(f"http://{NAME}:{port_of(canary_server)}/")).status == 200
    assert canary_server.connections == 0
    assert resolver.lookups == [NAME]


async def test_the_checked_address_is_connected_to() -> None:
    with raw(answer_and_close) as server, canary(THERE, port_of(server)) as canary_server:
        resolver = FakeResolver([HERE], [THERE])
        async with posting(resolver, dev=True, allowed_hosts=[NAME], timeout=1) as post:
            url = f"http://{NAME}:{port_of(canary_server)}/hook"
            assert (await post(url)).status == 200
            assert (server.connections, canary_server.connections) == (1, 0)
            assert len(resolver.lookups) == 1
            await post(url)  # the next connection is checked again
        assert len(resolver.lookups) == 2
    assert (server.connections, canary_server.connections) == (1, 1)
    assert [request.path for request in server.requests] == ["/hook"]


async def test_a_kept_connection_is_not_checked_again() -> None:
    with raw(answer_ok) as server:
        resolver = FakeResolver([HERE], [OUTSIDE])
        async with posting(resolver, dev=True) as post:
            statuses = [(await post(f"http://{NAME}:{port_of(server)}/")).status for _ in range(3)]
    assert statuses == [200] * 3
    assert (server.connections, len(resolver.lookups)) == (1, 1)


async def test_the_first_of_several_addresses_is_connected_to() -> None:
    with raw(answer_ok) as server, canary(THERE, port_of(server)) as canary_server:
        resolver = FakeResolver([HERE, THERE, "127.0.0.3"])
        async with posting(resolver, dev=True) as post:
            assert (await post(f"http://{NAME}:{port_of(server)}/")).status == 200
    assert (server.connections, canary_server.connections) == (1, 0)


async def test_the_next_address_is_tried_if_the_first_refuses_the_connection() -> None:
    with raw(answer_ok) as server:
        resolver = FakeResolver([THERE, "127.0.0.3", HERE])
        async with posting(resolver, dev=True) as post:
            assert (await post(f"http://{NAME}:{port_of(server)}/")).status == 200
    assert len(resolver.lookups) == 1


async def test_an_attempt_fails_if_all_addresses_refuse_the_connection() -> None:
    with listener() as sock:
        port = sock.getsockname()[1]
    async with posting(FakeResolver([HERE, THERE]), dev=True) as post:
        answer = await post(f"http://{NAME}:{port}/")
    assert answer == WebhookResponse(0, "ConnectError", kind="connection")


async def test_an_address_has_the_time_that_others_have_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares: list[float] = []

    async def connect(_: Any, host: str, port: int, seconds: float) -> None:
        shares.append(seconds)
        raise httpcore.ConnectError if len(shares) == 1 else httpcore.ConnectTimeout

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    async with posting(FakeResolver([OUTSIDE, "93.184.215.15"]), timeout=8) as post:
        answer = await post(f"https://{NAME}/")

    assert shares == [pytest.approx(4, abs=1), pytest.approx(8, abs=1)]
    assert answer == WebhookResponse(0, "no answer in 8 s", kind="timeout")


# Redirects and proxies


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    with (
        canary() as canary_server,
        raw(lambda _: reply(b"", status, location=canary_server.url)) as server,
    ):
        async with posting(dev=True) as post:
            answer = await post(server.url)
    assert (answer.status, answer.is_success) == (status, False)
    assert (len(server.requests), canary_server.connections) == (1, 0)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"])
async def test_proxies_of_the_environment_are_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with canary() as canary_server, raw(answer_ok) as server, secure_server(NAME) as secure:
        for spelling in (name, name.lower()):
            monkeypatch.setenv(spelling, canary_server.url)
        async with posting(FakeResolver([HERE]), dev=True) as post:
            for url in (f"http://{NAME}:{port_of(server)}/", secure.url):
                assert (await post(url)).status == 200
    assert canary_server.connections == 0


async def test_a_configured_proxy_resolves_names_itself() -> None:
    resolver = FakeResolver([OUTSIDE])
    with raw(lambda request: reply(b"", 403 if request.method == "CONNECT" else 200)) as proxy:
        async with posting(resolver, dev=True, proxy=proxy.url) as post:
            assert (await post(f"http://{NAME}/hook")).status == 200
            assert (await post(f"https://{NAME}/hook")).status == 0
    requests = [(request.method, request.path) for request in proxy.requests]
    assert requests == [("POST", f"http://{NAME}/hook"), ("CONNECT", f"{NAME}:443")]
    assert not resolver.lookups


# TLS


class TlsServer(RawServer):
    """Server with a certificate; records the server names that clients request."""

    def __init__(self, script: Script, certificate: trustme.LeafCert) -> None:
        super().__init__(script)
        self.names: list[str | None] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.context)
        self.context.sni_callback = lambda _, name, __: self.names.append(name)

    async def handle(self, reader: Any, writer: Any) -> None:
        with suppress(ssl.SSLError):  # a client that does not trust the certificate
            await writer.start_tls(self.context)
            while (request := await read_request(reader)) is not None:
                self.requests.append(request)
                await self._answer(request, reader, writer)


@contextmanager
def secure_server(
    *names: str, ca: trustme.CA = CA, script: Script = answer_ok
) -> Iterator[TlsServer]:
    """Run a server at 127.0.0.1 with a certificate for *names*; its URL has the host `NAME`."""
    server = TlsServer(script, ca.issue_cert(*names))
    with listener() as sock, server.running(sock):
        server.url = f"https://{NAME}:{port_of(server)}/hook"
        yield server


@pytest.mark.parametrize("certified_name", [NAME, "*.example.com"])
async def test_tls_and_the_host_header_use_the_name_and_not_the_address(
    certified_name: str,
) -> None:
    with secure_server(certified_name) as server:
        resolver = FakeResolver([HERE])
        async with posting(resolver, allowed_hosts=[NAME], ports=[port_of(server)]) as post:
            assert await post(server.url, b'{"id": "t-1"}') == WebhookResponse(200, "status 200")
    (request,) = server.requests
    assert (request.method, request.path, request.json) == ("POST", "/hook", {"id": "t-1"})
    assert request.headers["host"].partition(":")[0] == NAME
    assert server.names == [NAME]
    assert len(resolver.lookups) == 1


UNTRUSTED: dict[str, Iterable[Any]] = {
    "another name": (CA, "other.example.com"),
    "the parent domain": (CA, "example.com"),
    "a subdomain": (CA, f"a.{NAME}"),
    "the address": (CA, HERE),
    "another authority": (trustme.CA(), NAME),
}


@pytest.mark.parametrize(("ca", "certified_name"), UNTRUSTED.values(), ids=UNTRUSTED)
@pytest.mark.parametrize("dev", [False, True])
async def test_a_server_without_a_trusted_certificate_for_the_name_gets_no_request(
    ca: trustme.CA, certified_name: str, dev: bool
) -> None:
    with secure_server(certified_name, ca=ca) as server:
        port = port_of(server)
        async with posting(
            FakeResolver([HERE]), allowed_hosts=[NAME], ports=[port], dev=dev
        ) as post:
            answer = await post(server.url)
    assert answer == WebhookResponse(0, "ConnectError", kind="connection")
    assert (server.connections, server.requests) == (1, [])
    assert server.names == [NAME]


async def test_a_server_without_tls_gets_no_request() -> None:
    with canary() as canary_server:
        async with posting(FakeResolver([HERE]), dev=True, timeout=0.2) as post:
            assert (await post(f"https://{NAME}:{port_of(canary_server)}/secret")).status == 0
    assert canary_server.connections == 1
    assert b"secret" not in canary_server.received


async def test_a_literal_address_is_connected_to() -> None:
    with secure_server(HERE) as server:
        async with posting(dev=True) as post:
            assert (await post(f"https://{HERE}:{port_of(server)}/")).status == 200
    assert server.names == [None]
