"""Issuers that are broken, or mean harm: nobody gets known by them, and everything else goes on."""

import asyncio
import os
import tracemalloc
from collections.abc import Awaitable, Iterator
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import pytest
from apcore_a2a_auth import JWTAuthenticator
from apcore_a2a_auth.jwks import LIFETIME, MAX_BYTES, MAX_KEYS

from tests.client.raw import reply

from .issuer import (
    DISCOVERY,
    KEYS,
    MEGABYTE,
    Clock,
    Issuer,
    bomb,
    dripping_keys,
    endless_keys,
    fetching,
    knows,
    running,
    unavailable,
)
from .issuer import clock as clock
from .issuer import issuer as issuer
from .tokens import ATTACKER, AUDIENCE, ED25519, P256, P384, RSA, Json, KeyPair, base64url
from .tokens import anyio_backend as anyio_backend
from .tokens import silent as silent

pytestmark = pytest.mark.anyio
A_WHILE = 0.3
"""Seconds for which an issuer lets people wait."""
DROPS = 1000
"""Bytes, of which each takes 0.01 seconds."""
TICK = 0.001
STALL = 0.02
"""Seconds for which nothing else may run."""
IN_FLIGHT = 8 * MEGABYTE
"""What may be under way on a connection, in the buffers of both ends."""


# Keys

STRANGE: dict[str, Any] = {
    "no object": 5,
    "nothing": {},
    "of no kind": {"kty": "made-up"},
    "of a kind that is no text": {"kty": ["RSA"]},
    "for encryption": P384.jwk | {"use": "enc"},
    "with a use that is no text": P384.jwk | {"use": []},
    "for no operation": P384.jwk | {"key_ops": ["encrypt"]},
    "of an algorithm that nobody knows": P384.jwk | {"alg": "RSA-OAEP-256"},
    "of an algorithm that is no text": P384.jwk | {"alg": []},
    "of another kind's algorithm": P384.jwk | {"alg": "RS256"},
    "without a modulus": {"kty": "RSA", "kid": "x", "e": "AQAB"},
    "with an exponent of 1": RSA.jwk | {"kid": "x", "e": "AQ"},
    "with a modulus that is no text": RSA.jwk | {"kid": "x", "n": 5},
    "not on its curve": P384.jwk | {"x": P384.jwk["y"]},
    "on no curve": P384.jwk | {"crv": "P-999"},
    "too short": ED25519.jwk | {"x": "AA"},
    "a private key": P384.jwk | {"d": "AA"},
    "shared": {"kty": "oct", "k": "AA"},
}
BREAKS_ALL: dict[str, Json] = {
    "shared, without its secret": {"kty": "oct"},
    "for the algorithm none": P384.jwk | {"alg": "none"},
    "with operations that are a number": P384.jwk | {"key_ops": 5},
}


@pytest.mark.parametrize(
    "jwk",
    [
        *(pytest.param(jwk, id=name) for name, jwk in STRANGE.items()),
        *(pytest.param(jwk, id=name) for name, jwk in BREAKS_ALL.items()),
    ],
)
async def test_a_strange_key_leaves_the_others_alone(jwk: Any, issuer: Issuer) -> None:
    issuer.keys = [jwk, RSA.jwk]
    assert await knows(fetching(issuer))


@pytest.mark.parametrize("key", [RSA, P256, ED25519], ids=lambda key: key.kid)
async def test_a_private_key_that_is_published_is_good_for_nothing(
    key: KeyPair, issuer: Issuer
) -> None:
    issuer.publish(key.jwk | {"d": base64url(b"\1" * 32)})
    assert not await knows(fetching(issuer), key)


# Sets of keys


ODD_ANSWERS: dict[str, tuple[Any, int]] = {
    "no JSON": (b"<!doctype html><title>s3cr3t</title>", 200),
    "nothing": (b"", 200),
    "not UTF-8": (b'{"keys": ["\xff"]}', 200),
    "an array": ([RSA.jwk], 200),
    "a text": ("keys", 200),
    "no keys": ({}, 200),
    "keys that are an object": ({"keys": RSA.jwk}, 200),
    "keys that are null": ({"keys": None}, 200),
    "too many keys": ({"keys": [RSA.jwk] * (MAX_KEYS + 1)}, 200),
    "deep": (b'{"keys":' + b"[" * 100_000, 200),
    "a number too long": (b'{"keys": [], "x": ' + b"1" * 100_000 + b"}", 200),
    "too large": (b'{"keys": []}' + b" " * MAX_BYTES, 200),
    "an error": ({"keys": [RSA.jwk]}, 500),
    "not found": ({"keys": [RSA.jwk]}, 404),
    "created": ({"keys": [RSA.jwk]}, 201),
    "partial content": ({"keys": [RSA.jwk]}, 206),
    "permanent redirect": ({"keys": [RSA.jwk]}, 308),
}
"""Bodies and statuses."""


@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_what_is_no_set_of_keys_is_no_answer(
    name: str, issuer: Issuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    clock.passes(LIFETIME)
    issuer.says(*ODD_ANSWERS[name])
    assert await knows(authenticator)
    assert "s3cr3t" not in await unavailable(fetching(issuer))
    assert "No keys from" in caplog.text
    assert "s3cr3t" not in caplog.text


async def test_an_empty_set_is_one(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.publish(P256)
    issuer.keys = []
    clock.passes(LIFETIME)
    assert not await knows(authenticator)


async def test_a_set_may_be_as_large_as_is_allowed(issuer: Issuer) -> None:
    body = b'{"keys": []}'
    issuer.says(body + b" " * (MAX_BYTES - len(body)))
    assert not await knows(fetching(issuer))


async def test_nobody_follows_the_issuer_to_another_place(issuer: Issuer) -> None:
    with running(Issuer()) as another:
        issuer.says(status=302, location=another.jwks_url)
        await unavailable(fetching(issuer))
        assert not another.connections


async def test_a_set_without_an_end_is_read_no_further_than_allowed(issuer: Issuer) -> None:
    issuer.answers[KEYS] = endless_keys
    await unavailable(fetching(issuer))
    assert issuer.sent < IN_FLIGHT


async def test_a_set_is_not_unpacked(issuer: Issuer) -> None:
    assert await knows(fetching(issuer))
    issuer.answers[KEYS] = bomb()
    tracemalloc.start()
    try:
        await unavailable(fetching(issuer))
        assert tracemalloc.get_traced_memory()[1] < IN_FLIGHT
    finally:
        tracemalloc.stop()
    assert issuer.requests[1].headers["accept-encoding"] == "identity"


async def test_a_set_that_drips_is_waited_for_no_longer_than_any(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_auth.jwks.TIMEOUT", A_WHILE)
    issuer.answers[KEYS] = dripping_keys
    await unavailable(fetching(issuer))
    assert issuer.sent < DROPS


# Discovery documents


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://idp.example.com"},
        {"issuer": None},
        {"issuer": ["http://127.0.0.1"]},
        {"jwks_uri": None},
        {"jwks_uri": 5},
        {"jwks_uri": ""},
        {"jwks_uri": "/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://"},
        {"jwks_uri": "http://[::1"},
        {"jwks_uri": "http://xn--/"},
        {"jwks_uri": "http://127.0.0.1:0/"},
    ],
    ids=str,
)
async def test_a_document_that_leads_nowhere_is_no_answer(document: Json, issuer: Issuer) -> None:
    issuer.document = document
    await unavailable(discovering(issuer), iss=issuer.url)
    assert not issuer.count()


async def test_a_port_that_there_is_not_leads_nowhere(issuer: Issuer) -> None:
    issuer.document = {"jwks_uri": "http://127.0.0.1:65536/keys"}
    await unavailable(discovering(issuer), iss=issuer.url)


async def test_what_a_document_says_is_not_repeated(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.document = {"jwks_uri": "http://127.0.0.1:0/\nERROR root s3cr3t"}
    assert "s3cr3t" not in await unavailable(discovering(issuer), iss=issuer.url)
    assert "s3cr3t" not in caplog.text


async def test_the_password_in_an_address_is_not_repeated(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    url = issuer.jwks_url.replace("//", "//user:s3cr3t@") + "?token=s3cr3t"
    issuer.breaks()
    assert "s3cr3t" not in await unavailable(JWTAuthenticator(jwks_url=url))
    ours = [record for record in caplog.records if record.name.startswith("apcore")]
    assert not [record for record in ours if "s3cr3t" in record.getMessage()]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"[" * 100_000, b" " * (MAX_BYTES + 1)])
async def test_a_document_that_is_none_is_no_answer(body: bytes, issuer: Issuer) -> None:
    issuer.answers[DISCOVERY] = lambda _: reply(body)
    await unavailable(discovering(issuer), iss=issuer.url)


async def test_keys_from_a_given_place_come_from_no_other(issuer: Issuer, clock: Clock) -> None:
    with running(Issuer(ATTACKER)) as attacker:
        authenticator = fetching(issuer, issuer=attacker.url)
        issuer.breaks()
        await unavailable(authenticator, iss=attacker.url)
        clock.passes(LIFETIME)
        await unavailable(authenticator, iss=attacker.url)
        assert not attacker.connections


def discovering(issuer: Issuer) -> JWTAuthenticator:
    return JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)


# Certificates


@pytest.fixture
def secure() -> Iterator[Issuer]:
    """An issuer that speaks TLS."""
    with running(Issuer(holder=P256)) as found:
        yield found


@pytest.fixture
def trusted(secure: Issuer, clock: Clock) -> Issuer:
    """One whose certificate is trusted."""
    Path(os.environ["SSL_CERT_FILE"]).write_bytes(secure.certificate)
    return secure


async def test_an_issuer_with_a_certificate_is_believed(trusted: Issuer) -> None:
    assert await knows(discovering(trusted), iss=trusted.url)


async def test_an_issuer_whose_certificate_nobody_knows_is_not_believed(secure: Issuer) -> None:
    await unavailable(discovering(secure), iss=secure.url)
    assert not secure.requests


async def test_an_issuer_under_another_name_is_not_believed(trusted: Issuer) -> None:
    url = trusted.url.replace("127.0.0.1", "localhost")
    await unavailable(JWTAuthenticator(jwks_url=url + KEYS))
    assert not trusted.requests


async def test_an_issuer_with_a_certificate_has_no_keys_without(
    trusted: Issuer, issuer: Issuer
) -> None:
    trusted.document = {"jwks_uri": issuer.jwks_url}
    await unavailable(discovering(trusted), iss=trusted.url)
    assert not issuer.connections


async def test_the_name_of_encryption_has_no_case(trusted: Issuer, issuer: Issuer) -> None:
    url = trusted.url.replace("https", "HTTPS")
    trusted.document = {"issuer": url, "jwks_uri": issuer.jwks_url}
    await unavailable(JWTAuthenticator(issuer=url, audience=AUDIENCE), iss=url)


# The event loop


async def stall(work: Awaitable[object]) -> tuple[float, float]:
    """The longest time for which nothing else ran while *work* was done.

    In seconds of this thread, which what else runs on the machine does not make longer, and of the
    clock, in which waiting counts.
    """
    task, busy, blocked = asyncio.ensure_future(work), 0.0, 0.0
    while not task.done():
        begin = thread_time(), perf_counter()
        await asyncio.sleep(TICK)
        busy = max(busy, thread_time() - begin[0])
        blocked = max(blocked, perf_counter() - begin[1])
    await task
    return busy, blocked


async def assert_nothing_stalls(issuer: Issuer, known: bool) -> None:
    """One time of three is enough: the first imports what is needed, and machines are busy."""
    for _ in range(3):
        authenticator = fetching(issuer)
        busy, blocked = await stall(knows(authenticator))
        if busy < STALL and blocked < A_WHILE:
            break
    assert busy < STALL
    assert blocked < A_WHILE
    assert await knows(authenticator) == known


@pytest.mark.clock
async def test_nothing_stalls_while_the_issuer_is_slow(issuer: Issuer) -> None:
    issuer.answers[KEYS] = lambda _: [A_WHILE, *reply({"keys": [RSA.jwk]})]
    await assert_nothing_stalls(issuer, True)


@pytest.mark.clock
async def test_nothing_stalls_while_as_much_is_read_as_is_allowed(issuer: Issuer) -> None:
    chain = [base64url(RSA.der * 5)]
    others = [RSA.jwk | {"kid": str(number), "x5c": chain} for number in range(MAX_KEYS - 1)]
    issuer.says({"keys": [*others, RSA.jwk]})
    await assert_nothing_stalls(issuer, True)


@pytest.mark.clock
async def test_nothing_stalls_while_a_private_key_is_read(issuer: Issuer) -> None:
    modulus = base64url(b"\xff" * 512)
    issuer.publish(RSA.jwk | {"n": modulus, "d": modulus})
    await assert_nothing_stalls(issuer, False)
