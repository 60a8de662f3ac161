"""An issuer of tokens: a real server for its keys, which does what a test tells it to."""

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

from tests.client.raw import CUT, Raw, Request, Step, endless, head, read_request, reply
from tests.serving import PATIENCE, listener

from .tokens import (
    AUDIENCE,
    ED25519,
    PUBLISHED,
    RSA,
    SUBJECT,
    Json,
    KeyPair,
    bearing,
    certificate,
    token,
)

KEYS = "/keys"
DISCOVERY = "/.well-known/openid-configuration"
MEGABYTE = 2**20
NOBODY = certificate(ED25519)
"""The certificate of nobody who serves anything."""
Answer = Callable[[Request], Iterable[Step]]


class Issuer(Raw):
    """Publishes keys and a discovery document; it counts who asks, and answers when it is open.

    What it answers is looked up for each request, so that a test can change it at any time:
    `keys` and `document` for what an honest issuer says, `answers` for any other.

    Args:
        keys: Those that it publishes.
        holder: Who has the key of its certificate, when it speaks TLS.
    """

    def __init__(self, *keys: KeyPair | Json, holder: KeyPair | None = None) -> None:
        super().__init__(self._said)
        self.publish(*(keys or PUBLISHED))
        self.document: Json = {}
        self.answers: dict[str, Answer] = {}
        self.asked_at_all = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.certificate = certificate(holder) if holder else b""
        self.tls = server_side(holder.private_pem + self.certificate) if holder else None

    @property
    def jwks_url(self) -> str:
        return self.url + KEYS

    def publish(self, *keys: KeyPair | Json) -> None:
        """Have these keys and no other."""
        self.keys = [key.jwk if isinstance(key, KeyPair) else key for key in keys]

    def says(self, body: object = b"", status: int = 200, **headers: str) -> None:
        """Answer who asks for the keys with just this."""
        self.answers[KEYS] = lambda _: reply(body, status, **headers)

    def breaks(self) -> None:
        """Answer nobody."""
        self.answers = dict.fromkeys((KEYS, DISCOVERY), lambda _: [CUT])

    def recovers(self) -> None:
        """Be honest again."""
        self.answers = {}

    def count(self, path: str = KEYS) -> int:
        """How often *path* was asked for."""
        return len([request for request in self.requests if request.path == path])

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.tls:
            await writer.start_tls(self.tls)
        while (request := await read_request(reader)) is not None:
            self.requests.append(request)
            self.asked_at_all.set()
            await asyncio.to_thread(self.open.wait, PATIENCE)
            if not await self._answer(request, reader, writer):
                break

    def _said(self, request: Request) -> Iterable[Step]:
        if answer := self.answers.get(request.path.partition("?")[0]):
            return answer(request)
        if request.path == DISCOVERY:
            return reply({"issuer": self.url, "jwks_uri": self.jwks_url, **self.document})
        return reply({"keys": self.keys})


@contextmanager
def running(issuer: Issuer) -> Iterator[Issuer]:
    """Let *issuer* answer at a port of its own."""
    with listener() as sock, issuer.running(sock):
        if issuer.tls:
            issuer.url = issuer.url.replace("http:", "https:")
        try:
            yield issuer
        finally:
            issuer.open.set()


def nobody() -> str:
    """An address where nobody listens."""
    with listener() as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def server_side(chain: bytes) -> ssl.SSLContext:
    """For a server that has a private key and its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def fetching(issuer: Issuer, /, **options: Any) -> JWTAuthenticator:
    """An authenticator that knows where the keys are."""
    return JWTAuthenticator(jwks_url=issuer.jwks_url, **{"audience": AUDIENCE, **options})


async def knows(authenticator: JWTAuthenticator, key: KeyPair = RSA, /, **claims: Any) -> bool:
    """Whether it takes a token that is signed with *key*."""
    identity = await authenticator.authenticate(bearing(token(key, **claims)))
    assert identity is None or identity.id == SUBJECT
    return identity is not None


async def unavailable(authenticator: JWTAuthenticator, **claims: Any) -> str:
    """What it says when it can't have the keys."""
    with pytest.raises(KeysUnavailableError) as caught:
        await knows(authenticator, **claims)
    return str(caught.value)


async def settled() -> None:
    """Return when nothing is fetched any more."""
    fetches = [task for task in asyncio.all_tasks() if "Jwks" in repr(task.get_coro())]
    await asyncio.gather(*fetches, return_exceptions=True)


def endless_keys(request: Request) -> Iterable[Step]:
    """A set that goes on and on."""
    return endless(head(content_type="application/json") + b'{"keys": [', b" " * 2**16)


def dripping_keys(request: Request) -> Iterable[Step]:
    """A set that comes byte by byte, each of them soon enough."""
    yield head(content_type="application/json") + b'{"keys": ['
    for _ in range(PATIENCE * 100):
        yield b" "
        yield 0.01


def bomb() -> Answer:
    """A small answer that gets large when it is unpacked, which nobody asked for."""
    body = gzip.compress(json.dumps({"keys": []}).encode() + b" " * 64 * MEGABYTE)
    return lambda _: reply(body, content_encoding="gzip")


class Clock:
    """Tells the time that a test wants it to be."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    """The clock by which keys get old; besides, no key is in the environment, and no certificate
    is trusted, for loading them takes most of a test's time."""
    found = Clock()
    monkeypatch.setattr("apcore_a2a_auth.jwks.monotonic", found)
    monkeypatch.delenv("APCORE_JWT_SECRET", raising=False)
    path = tmp_path / "trusted.pem"
    path.write_bytes(NOBODY)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return found


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An honest issuer, until it is told something else."""
    with running(Issuer()) as found:
        yield found
