"""Broken and malicious issuers, and unusable keys."""

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
    accepts,
    compressed_keys,
    endless_keys,
    jwks_authenticator,
    running,
    slow_keys,
    unavailable_message,
)
from .issuer import clock as clock
from .issuer import issuer as issuer
from .tokens import ATTACKER, AUDIENCE, ED25519, P256, P384, RSA, Json, KeyPair, base64url
from .tokens import anyio_backend as anyio_backend
from .tokens import no_secrets_logged as no_secrets_logged

pytestmark = pytest.mark.anyio
ISSUER_DELAY = 0.3
"""Seconds by which an issuer delays its response; also the timeout of a fetch in one test."""
MAX_SLOW_BYTES = 1000
"""Maximum number of bytes that a slow issuer gets to send, at 0.01 seconds each."""
TICK = 0.001
STALL = 0.02
"""Seconds for which the event loop may be blocked."""
IN_FLIGHT = 8 * MEGABYTE
"""Bytes that may be in the buffers of both ends of a connection; also a limit for memory."""


# Keys

UNUSABLE_KEYS: dict[str, Any] = {
    "not an object": 5,
    "empty": {},
    "of an unknown type": {"kty": "made-up"},
    "of a type that is not a string": {"kty": ["RSA"]},
    "for encryption": P384.jwk | {"use": "enc"},
    "with a use that is not a string": P384.jwk | {"use": []},
    "for another operation": P384.jwk | {"key_ops": ["encrypt"]},
    "of an unknown algorithm": P384.jwk | {"alg": "RSA-OAEP-256"},
    "of an algorithm that is not a string": P384.jwk | {"alg": []},
    "of an algorithm for another type": P384.jwk | {"alg": "RS256"},
    "without a modulus": {"kty": "RSA", "kid": "x", "e": "AQAB"},
    "with an exponent of 1": RSA.jwk | {"kid": "x", "e": "AQ"},
    "with a modulus that is not a string": RSA.jwk | {"kid": "x", "n": 5},
    "not on its curve": P384.jwk | {"x": P384.jwk["y"]},
    "on an unknown curve": P384.jwk | {"crv": "P-999"},
    "too short": ED25519.jwk | {"x": "AA"},
    "a private key": P384.jwk | {"d": "AA"},
    "shared": {"kty": "oct", "k": "AA"},
    "shared, without its secret": {"kty": "oct"},
    "for the algorithm none": P384.jwk | {"alg": "none"},
    "with operations that are a number": P384.jwk | {"key_ops": 5},
}


@pytest.mark.parametrize("name", UNUSABLE_KEYS)
async def test_an_unusable_key_does_not_affect_the_others(name: str, issuer: Issuer) -> None:
    issuer.keys = [UNUSABLE_KEYS[name], RSA.jwk]
    assert await accepts(jwks_authenticator(issuer))


@pytest.mark.parametrize("key", [RSA, P256, ED25519], ids=lambda key: key.kid)
async def test_a_published_private_key_is_not_used(key: KeyPair, issuer: Issuer) -> None:
    issuer.publish(key.jwk | {"d": base64url(b"\1" * 32)})
    assert not await accepts(jwks_authenticator(issuer), key)


# Sets of keys


ODD_ANSWERS: dict[str, tuple[Any, int]] = {
    "not JSON": (b"<!doctype html><title>s3cr3t</title>", 200),
    "empty": (b"", 200),
    "not UTF-8": (b'{"keys": ["\xff"]}', 200),
    "an array": ([RSA.jwk], 200),
    "a string": ("keys", 200),
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
async def test_an_invalid_response_is_ignored(
    name: str, issuer: Issuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    clock.advance(LIFETIME)
    issuer.answer_keys_with(*ODD_ANSWERS[name])
    assert await accepts(authenticator)
    assert "s3cr3t" not in await unavailable_message(jwks_authenticator(issuer))
    assert "Cannot fetch keys from" in caplog.text
    assert "s3cr3t" not in caplog.text


async def test_an_empty_key_set_is_valid(issuer: Issuer, clock: Clock) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.keys = []
    clock.advance(LIFETIME)
    assert not await accepts(authenticator)


async def test_a_key_set_may_be_as_large_as_the_limit(issuer: Issuer) -> None:
    body = b'{"keys": []}'
    issuer.answer_keys_with(body + b" " * (MAX_BYTES - len(body)))
    assert not await accepts(jwks_authenticator(issuer))


async def test_redirects_of_the_issuer_are_not_followed(issuer: Issuer) -> None:
    with running(Issuer()) as another:
        issuer.answer_keys_with(status=302, location=another.jwks_url)
        await unavailable_message(jwks_authenticator(issuer))
        assert not another.connections


async def test_an_endless_key_set_is_read_up_to_the_limit(issuer: Issuer) -> None:
    issuer.answers[KEYS] = endless_keys
    await unavailable_message(jwks_authenticator(issuer))
    assert issuer.sent < IN_FLIGHT


async def test_a_compressed_key_set_is_not_decompressed(issuer: Issuer) -> None:
    assert await accepts(jwks_authenticator(issuer))
    issuer.answers[KEYS] = compressed_keys()
    tracemalloc.start()
    try:
        await unavailable_message(jwks_authenticator(issuer))
        assert tracemalloc.get_traced_memory()[1] < IN_FLIGHT
    finally:
        tracemalloc.stop()
    assert issuer.requests[1].headers["accept-encoding"] == "identity"


async def test_a_slowly_sent_key_set_times_out(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_auth.jwks.TIMEOUT", ISSUER_DELAY)
    issuer.answers[KEYS] = slow_keys
    await unavailable_message(jwks_authenticator(issuer))
    assert issuer.sent < MAX_SLOW_BYTES


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
async def test_with_a_wrong_issuer_or_key_url_in_the_document_no_keys_are_available(
    document: Json, issuer: Issuer
) -> None:
    issuer.document = document
    await unavailable_message(discovering_authenticator(issuer), iss=issuer.url)
    assert not issuer.count_requests()


async def test_with_an_invalid_port_in_the_key_url_no_keys_are_available(issuer: Issuer) -> None:
    issuer.document = {"jwks_uri": "http://127.0.0.1:65536/keys"}
    await unavailable_message(discovering_authenticator(issuer), iss=issuer.url)


async def test_the_content_of_a_document_is_in_no_error_and_no_log_record(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.document = {"jwks_uri": "http://127.0.0.1:0/\nERROR root s3cr3t"}
    assert "s3cr3t" not in await unavailable_message(
        discovering_authenticator(issuer), iss=issuer.url
    )
    assert "s3cr3t" not in caplog.text


async def test_the_password_in_a_url_is_in_no_error_and_no_log_record_of_apcore(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    url = issuer.jwks_url.replace("//", "//user:s3cr3t@") + "?token=s3cr3t"
    issuer.drop_connections()
    assert "s3cr3t" not in await unavailable_message(JWTAuthenticator(jwks_url=url))
    own_records = [record for record in caplog.records if record.name.startswith("apcore")]
    assert not [record for record in own_records if "s3cr3t" in record.getMessage()]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"[" * 100_000, b" " * (MAX_BYTES + 1)])
async def test_with_a_malformed_document_no_keys_are_available(body: bytes, issuer: Issuer) -> None:
    issuer.answers[DISCOVERY] = lambda _: reply(body)
    await unavailable_message(discovering_authenticator(issuer), iss=issuer.url)


async def test_keys_are_fetched_only_from_a_configured_url(issuer: Issuer, clock: Clock) -> None:
    with running(Issuer(ATTACKER)) as attacker:
        authenticator = jwks_authenticator(issuer, issuer=attacker.url)
        issuer.drop_connections()
        await unavailable_message(authenticator, iss=attacker.url)
        clock.advance(LIFETIME)
        await unavailable_message(authenticator, iss=attacker.url)
        assert not attacker.connections


def discovering_authenticator(issuer: Issuer) -> JWTAuthenticator:
    return JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)


# Certificates


@pytest.fixture
def tls_issuer() -> Iterator[Issuer]:
    """Run an issuer that speaks TLS."""
    with running(Issuer(holder=P256)) as issuer_with_tls:
        yield issuer_with_tls


@pytest.fixture
def trusted_issuer(tls_issuer: Issuer, clock: Clock) -> Issuer:
    """Return an issuer with a trusted certificate."""
    Path(os.environ["SSL_CERT_FILE"]).write_bytes(tls_issuer.certificate)
    return tls_issuer


async def test_an_issuer_with_a_trusted_certificate_is_accepted(trusted_issuer: Issuer) -> None:
    assert await accepts(discovering_authenticator(trusted_issuer), iss=trusted_issuer.url)


async def test_an_issuer_with_an_untrusted_certificate_is_refused(tls_issuer: Issuer) -> None:
    await unavailable_message(discovering_authenticator(tls_issuer), iss=tls_issuer.url)
    assert not tls_issuer.requests


async def test_an_issuer_under_another_host_name_is_refused(trusted_issuer: Issuer) -> None:
    url = trusted_issuer.url.replace("127.0.0.1", "localhost")
    await unavailable_message(JWTAuthenticator(jwks_url=url + KEYS))
    assert not trusted_issuer.requests


async def test_an_issuer_with_tls_may_not_publish_its_keys_over_plain_http(
    trusted_issuer: Issuer, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    trusted_issuer.document = {"jwks_uri": issuer.jwks_url}
    await unavailable_message(discovering_authenticator(trusted_issuer), iss=trusted_issuer.url)
    assert not issuer.connections
    assert (
        "the discovery document has a jwks_uri with http://, but the issuer has https://; "
        "set jwks_url, with https://"
    ) in caplog.text


async def test_an_issuer_with_https_in_capitals_may_not_publish_its_keys_over_plain_http(
    trusted_issuer: Issuer, issuer: Issuer
) -> None:
    url = trusted_issuer.url.replace("https", "HTTPS")
    trusted_issuer.document = {"issuer": url, "jwks_uri": issuer.jwks_url}
    await unavailable_message(JWTAuthenticator(issuer=url, audience=AUDIENCE), iss=url)


# The event loop


async def measure_stall(work: Awaitable[object]) -> tuple[float, float]:
    """Return the longest time for which *work* blocked the event loop, measured in two ways.

    The first is CPU time of this thread, which other load on the machine does not affect; the
    second is wall-clock time, which includes waiting. Both are in seconds.
    """
    task, busy, blocked = asyncio.ensure_future(work), 0.0, 0.0
    while not task.done():
        started_at = thread_time(), perf_counter()
        await asyncio.sleep(TICK)
        busy = max(busy, thread_time() - started_at[0])
        blocked = max(blocked, perf_counter() - started_at[1])
    await task
    return busy, blocked


async def assert_loop_is_not_blocked(issuer: Issuer, is_accepted: bool) -> None:
    """Check the best of three runs: the first imports modules, and the machine may be busy."""
    for _ in range(3):
        authenticator = jwks_authenticator(issuer)
        busy, blocked = await measure_stall(accepts(authenticator))
        if busy < STALL and blocked < ISSUER_DELAY:
            break
    assert busy < STALL
    assert blocked < ISSUER_DELAY
    assert await accepts(authenticator) == is_accepted


@pytest.mark.clock
async def test_a_slow_issuer_does_not_block_the_event_loop(issuer: Issuer) -> None:
    issuer.answers[KEYS] = lambda _: [ISSUER_DELAY, *reply({"keys": [RSA.jwk]})]
    await assert_loop_is_not_blocked(issuer, True)


@pytest.mark.clock
async def test_the_largest_key_set_does_not_block_the_event_loop(issuer: Issuer) -> None:
    chain = [base64url(RSA.der * 5)]
    other_keys = [RSA.jwk | {"kid": str(number), "x5c": chain} for number in range(MAX_KEYS - 1)]
    issuer.answer_keys_with({"keys": [*other_keys, RSA.jwk]})
    await assert_loop_is_not_blocked(issuer, True)


@pytest.mark.clock
async def test_a_published_private_key_does_not_block_the_event_loop(issuer: Issuer) -> None:
    modulus = base64url(b"\xff" * 512)
    issuer.publish(RSA.jwk | {"n": modulus, "d": modulus})
    await assert_loop_is_not_blocked(issuer, False)
