"""Issuer of tokens: a real server that publishes keys, with faults that tests can switch on."""

import asyncio
import gzip
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_auth import JWTAuthenticator, KeysUnavailableError
from apcore_a2a_core import TokenRefusedError

from tests.client.raw import CUT, RawServer, Request, Step, flood, head, read_request, reply
from tests.serving import PATIENCE, listener

from .tokens import (
    AUDIENCE,
    ED25519,
    PUBLISHED,
    RSA,
    SUBJECT,
    Json,
    KeyPair,
    bearer_headers,
    certificate,
    token,
)

KEYS = "/keys"
DISCOVERY = "/.well-known/openid-configuration"
MEGABYTE = 2**20
UNRELATED_CERTIFICATE = certificate(ED25519)
"""Certificate of a key that no server of the tests uses for TLS."""
Answer = Callable[[Request], Iterable[Step]]


class Issuer(RawServer):
    """Server that publishes keys and a discovery document.

    Records requests and answers them while `open` is set. The answer is looked up for each
    request, so a test can change it at any time: `keys` and `document` for an honest issuer,
    `answers` for a faulty one.

    Args:
        keys: Keys to publish; `PUBLISHED` if none are given.
        holder: Key pair of the TLS certificate; plain HTTP without it.
    """

    def __init__(self, *keys: KeyPair | Json, holder: KeyPair | None = None) -> None:
        super().__init__(self._current_answer)
        self.publish(*(keys or PUBLISHED))
        self.document: Json = {}
        self.answers: dict[str, Answer] = {}
        self.request_received = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.certificate = certificate(holder) if holder else b""
        self.tls = server_context(holder.private_pem + self.certificate) if holder else None

    @property
    def jwks_url(self) -> str:
        return self.url + KEYS

    def publish(self, *keys: KeyPair | Json) -> None:
        """Publish these keys and no others."""
        self.keys = [key.jwk if isinstance(key, KeyPair) else key for key in keys]

    def answer_keys_with(self, body: object = b"", status: int = 200, **headers: str) -> None:
        """Answer requests for the keys with this body, status and headers."""
        self.answers[KEYS] = lambda _: reply(body, status, **headers)

    def drop_connections(self) -> None:
        """Close each connection without an answer."""
        self.answers = dict.fromkeys((KEYS, DISCOVERY), lambda _: [CUT])

    def recover(self) -> None:
        """Answer honestly again."""
        self.answers = {}

    def count_requests(self, path: str = KEYS) -> int:
        """Return the number of requests for *path*."""
        return len([request for request in self.requests if request.path == path])

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.tls:
            await writer.start_tls(self.tls)
        while (request := await read_request(reader)) is not None:
            self.requests.append(request)
            self.request_received.set()
            await asyncio.to_thread(self.open.wait, PATIENCE)
            if not await self._answer(request, reader, writer):
                break

    def _current_answer(self, request: Request) -> Iterable[Step]:
        if answer := self.answers.get(request.path.partition("?")[0]):
            return answer(request)
        if request.path == DISCOVERY:
            return reply({"issuer": self.url, "jwks_uri": self.jwks_url, **self.document})
        return reply({"keys": self.keys})


@contextmanager
def running(issuer: Issuer) -> Iterator[Issuer]:
    """Serve *issuer* on a free port."""
    with listener() as sock, issuer.running(sock):
        if issuer.tls:
            issuer.url = issuer.url.replace("http:", "https:")
        try:
            yield issuer
        finally:
            issuer.open.set()


def unused_url() -> str:
    """Return a URL at which nothing listens."""
    with listener() as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def server_context(pem: bytes) -> ssl.SSLContext:
    """Return the TLS context of a server with this private key and certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def jwks_authenticator(issuer: Issuer, /, **options: Any) -> JWTAuthenticator:
    """Return an authenticator that fetches the keys of *issuer* from their URL."""
    return JWTAuthenticator(jwks_url=issuer.jwks_url, **{"audience": AUDIENCE, **options})


async def accepts(authenticator: JWTAuthenticator, key: KeyPair = RSA, /, **claims: Any) -> bool:
    """Return whether *authenticator* accepts a token signed with *key*."""
    try:
        identity = await authenticator.authenticate(bearer_headers(token(key, **claims)))
    except TokenRefusedError:
        return False
    assert identity is not None
    assert identity.id == SUBJECT
    return True


async def reason_of_refusal(authenticator: JWTAuthenticator, headers: dict[str, str]) -> str:
    """Return the reason why *authenticator* refuses the token in *headers*."""
    with pytest.raises(TokenRefusedError) as caught:
        await authenticator.authenticate(headers)
    return caught.value.reason.value


async def unavailable_message(authenticator: JWTAuthenticator, **claims: Any) -> str:
    """Return the message of the error raised because no keys could be fetched."""
    with pytest.raises(KeysUnavailableError) as caught:
        await accepts(authenticator, **claims)
    return str(caught.value)


async def wait_for_fetches() -> None:
    """Wait until no fetch of keys is running."""
    fetches = [task for task in asyncio.all_tasks() if "Jwks" in repr(task.get_coro())]
    await asyncio.gather(*fetches, return_exceptions=True)


def endless_keys(request: Request) -> Iterable[Step]:
    """Return an answer whose key set never ends."""
    return flood(head(content_type="application/json") + b'{"keys": [', b" " * 2**16)


def slow_keys(request: Request) -> Iterable[Step]:
    """Yield a key set byte by byte; each byte arrives before the read timeout."""
    yield head(content_type="application/json") + b'{"keys": ['
    for _ in range(PATIENCE * 100):
        yield b" "
        yield 0.01


def compressed_keys() -> Answer:
    """Return a function whose small answers expand to 64 MB; the client allows no compression."""
    body = gzip.compress(json.dumps({"keys": []}).encode() + b" " * 64 * MEGABYTE)
    return lambda _: reply(body, content_encoding="gzip")


class Clock:
    """Clock that only moves when a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    """Control the clock by which keys expire.

    Also unset `APCORE_JWT_SECRET`, and trust no real certificates: the system's are slow
    to load.
    """
    fake_clock = Clock()
    monkeypatch.setattr("apcore_a2a_auth.jwks.monotonic", fake_clock)
    monkeypatch.delenv("APCORE_JWT_SECRET", raising=False)
    path = tmp_path / "trusted.pem"
    path.write_bytes(UNRELATED_CERTIFICATE)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return fake_clock


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """Run an issuer that answers honestly until a test changes its answers."""
    with running(Issuer()) as running_issuer:
        yield running_issuer
