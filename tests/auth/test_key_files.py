"""Key files are read again when they change."""

import json
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from apcore_a2a_auth import APIKeyAuthenticator, ConfigurationError, JWTAuthenticator, hash_key
from apcore_a2a_auth import files as files_module
from apcore_a2a_core import TokenRefusedError

from .tokens import (
    MISSING,
    P256,
    RSA,
    SECRET,
    WEAK,
    authenticate,
    bearer_headers,
    claims,
    token,
    tracked,
)
from .tokens import no_secrets_logged as no_secrets_logged

OLD, NEW = "the old key of the tests, long and random", "the new key of the tests, long and random"
OTHER_SECRET = SECRET[::-1]


@pytest.fixture(autouse=True)
def check_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the file for changes at each request."""
    monkeypatch.setattr(files_module, "CHECK_INTERVAL", 0.0)


def key_file_of(*keys: str) -> str:
    """Return the content of a file of API keys."""
    entries = [{"id": "ci", "sha256": hash_key(key).removeprefix("sha256:")} for key in keys]
    return json.dumps({"keys": entries})


def accepts(authenticator: Any, credentials: str) -> bool:
    headers = bearer_headers(credentials)
    try:
        return authenticate(authenticator, {**headers, "x-api-key": credentials}) is not None
    except TokenRefusedError:
        return False


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace the file at *path* with another one."""
    new_path = path.with_suffix(".new")
    new_path.write_bytes(content.encode() if isinstance(content, str) else content)
    new_path.replace(path)


def rewrite_file(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


each_change = pytest.mark.parametrize("change", [replace_file, rewrite_file])
Change = Callable[[Path, str | bytes], None]


@each_change
def test_a_changed_file_of_api_keys_is_read_again(
    change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys.json"
    path.write_text(key_file_of(OLD))
    keys = APIKeyAuthenticator(path)
    assert [accepts(keys, key) for key in (OLD, NEW)] == [True, False]
    change(path, key_file_of(NEW))
    assert [accepts(keys, key) for key in (OLD, NEW)] == [False, True]
    assert [record.getMessage() for record in caplog.records] == [
        f"Reloaded the API keys in {path}"
    ]


@each_change
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((SECRET, SECRET), (OTHER_SECRET, OTHER_SECRET)),
        ((RSA.pem, RSA), (P256.pem, P256)),
        ((SECRET, SECRET), (RSA.pem, RSA)),
        ((RSA.pem, RSA), (SECRET, SECRET)),
    ],
    ids=["secrets", "public keys", "a secret to a public key", "a public key to a secret"],
)
def test_a_changed_key_for_tokens_is_read_again(
    change: Change, before: Any, after: Any, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    rewrite_file(path, before[0])
    authenticator = JWTAuthenticator(path)
    old, new = (signed(pair) for _, pair in (before, after))
    assert [accepts(authenticator, credentials) for credentials in (old, new)] == [True, False]
    change(path, after[0])
    assert [accepts(authenticator, credentials) for credentials in (old, new)] == [False, True]


def signed(pair: Any) -> str:
    """Return a token without an audience, signed with a key pair or a secret."""
    if not isinstance(pair, str):
        return token(pair, aud=MISSING)
    return tracked(jwt.encode(claims(aud=MISSING), pair, "HS256"))


BROKEN: dict[str, str | bytes] = {
    "empty": "",
    "half a file": key_file_of(NEW)[:-30],
    "a key in plain text": NEW,
    "no keys": '{"keys": []}',
    "text that is not UTF-8": b"\xff\xfe\x00",
    "private": RSA.private_pem,
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("kind", ["API keys", "key"])
def test_a_broken_file_keeps_the_earlier_keys_and_is_logged_once(
    kind: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, is_api = tmp_path / "keys", kind == "API keys"
    valid, broken = key_file_of(OLD) if is_api else RSA.pem, BROKEN[name]
    if not is_api and isinstance(broken, str):
        broken = broken[:20]  # a longer text could be a valid secret
    rewrite_file(path, valid)
    authenticator = APIKeyAuthenticator(path) if is_api else JWTAuthenticator(path)
    credentials = OLD if is_api else signed(RSA)
    replace_file(path, broken)
    assert [accepts(authenticator, credentials) for _ in range(3)] == [True] * 3
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.levelno == logging.ERROR
    assert f"Cannot reload the {kind} in {path}" in record.getMessage()
    assert NEW not in caplog.text
    rewrite_file(path, key_file_of(NEW) if is_api else P256.pem)
    assert not accepts(authenticator, credentials)
    assert accepts(authenticator, NEW if is_api else signed(P256))


def test_the_keys_of_a_missing_file_stay_valid_until_the_file_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_file_of(OLD))
    keys = APIKeyAuthenticator(path)
    path.unlink()
    assert [accepts(keys, OLD) for _ in range(3)] == [True] * 3
    path.write_text(key_file_of(OLD, NEW))
    assert accepts(keys, NEW)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        f"Cannot reload the API keys in {path}: "
        f"Cannot read the API keys in {path}: No such file or directory"
    ]


def test_a_file_that_becomes_readable_without_a_change_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_file_of(OLD))
    keys = APIKeyAuthenticator(path)

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    replace_file(path, key_file_of(NEW))
    os.utime(path, (time.time() - 3600,) * 2)  # longer ago than SETTLING_TIME
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)  # root may read any file, whatever its mode
        assert accepts(keys, OLD)
    assert [accepts(keys, key) for key in (NEW, OLD)] == [True, False]


def test_a_changed_link_to_the_file_is_noticed(tmp_path: Path) -> None:
    """Kubernetes updates mounted secrets in this way."""
    for name, key in (("one", OLD), ("two", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(key_file_of(key))
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "keys").symlink_to("data/keys")
    keys = APIKeyAuthenticator(tmp_path / "keys")
    assert accepts(keys, OLD)
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    assert [accepts(keys, key) for key in (OLD, NEW)] == [False, True]


@pytest.mark.parametrize("seconds_ago", [0, 3600, -3600])
def test_a_change_that_keeps_size_and_time_is_noticed_in_a_recent_file(
    seconds_ago: float, tmp_path: Path
) -> None:
    path, changed_at = tmp_path / "keys.json", time.time() - seconds_ago
    path.write_text(key_file_of(OLD))
    os.utime(path, (changed_at, changed_at))
    keys = APIKeyAuthenticator(path)
    path.write_text(key_file_of(NEW))
    os.utime(path, (changed_at, changed_at))
    assert accepts(keys, NEW) is (seconds_ago <= 0)


def test_a_file_is_not_checked_again_within_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_file_of(OLD))
    keys = APIKeyAuthenticator(path)
    monkeypatch.setattr(files_module, "CHECK_INTERVAL", math.inf)
    path.write_text(key_file_of(NEW))
    assert [accepts(keys, key) for key in (OLD, NEW)] == [True, False]


def test_a_changed_key_that_does_not_fit_the_algorithms_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key.pem"
    rewrite_file(path, RSA.pem)
    tokens = JWTAuthenticator(path, algorithms=[RSA.alg])
    rewrite_file(path, P256.pem)
    assert [accepts(tokens, signed(pair)) for pair in (RSA, P256)] == [True, False]
    assert "algorithms must be among those of the key: ES256" in caplog.text


def test_a_weak_key_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    rewrite_file(path, RSA.pem)
    tokens = JWTAuthenticator(path)
    rewrite_file(path, WEAK.pem)
    assert [accepts(tokens, signed(pair)) for pair in (RSA, WEAK)] == [True, False]


def test_a_broken_file_is_refused_at_startup(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("nothing")
    with pytest.raises(ConfigurationError, match="must have the format"):
        APIKeyAuthenticator(tmp_path / "keys")
    with pytest.raises(ConfigurationError, match="The secret has 7 bytes"):
        JWTAuthenticator(tmp_path / "keys")
