"""API keys."""

import gc
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator, ConfigurationError, hash_key
from apcore_a2a_auth.api_keys import MAX_KEY
from apcore_a2a_core import Authenticator

from .tokens import authenticate
from .tokens import no_secrets_logged as no_secrets_logged

KEY = "vTq0-first-key-of-the-tests-xK9z"
SECOND_KEY = "mW31-other-key-of-the-tests-bR7y"
HASH = hash_key(KEY).removeprefix("sha256:")
CI = {"id": "ci", "roles": ["operator"]}


def identity_for_key(
    authenticator: Authenticator, key: str, header: str = "x-api-key"
) -> Identity | None:
    return authenticate(authenticator, {header: key})


def refusal(keys: Any) -> str:
    """Return the message of the error that refuses *keys*."""
    with pytest.raises(ConfigurationError) as caught:
        APIKeyAuthenticator(keys)
    return str(caught.value)


# Authentication


@pytest.mark.parametrize("name", [KEY, hash_key(KEY), hash_key(KEY).upper()])
def test_a_key_is_configured_in_plain_text_or_by_its_hash(name: str) -> None:
    keys = APIKeyAuthenticator({name: "ci"})
    assert identity_for_key(keys, KEY) == Identity("ci", type="service")


def test_short_keys_cause_one_warning_that_does_not_show_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = {"sesame": "ada", "x" * 15: "bob", "y" * 16: "cat", hash_key("short"): "ci"}
    APIKeyAuthenticator(keys)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message == (
        "keys: 2 of 4 API keys (ada, bob) have fewer than 16 characters and can be guessed: "
        "use random ones, such as those of `openssl rand -base64 32`"
    )


def test_long_and_hashed_keys_cause_no_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    APIKeyAuthenticator({KEY: "ci", hash_key("short"): "ada"})
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{"id": "ci", "sha256": HASH}]}))
    APIKeyAuthenticator(tmp_path / "keys.json")
    assert not caplog.records


@pytest.mark.parametrize(
    ("owner", "identity"),
    [
        ("ci", Identity("ci", type="service")),
        ({"id": "ci"}, Identity("ci", type="service")),
        ({"id": "ada", "type": "user"}, Identity("ada", type="user")),
        ({"id": "ci", "roles": ["a", "b"]}, Identity("ci", type="service", roles=("a", "b"))),
        ({"id": "ci", "roles": None}, Identity("ci", type="service")),
        (
            {"id": "ci", "attrs": {"team": 7}},
            Identity("ci", type="service", attrs={"team": 7}),
        ),
        (Identity("ada", roles=("admin",)), Identity("ada", roles=("admin",))),
    ],
)
def test_an_owner_is_an_id_a_mapping_or_an_identity(owner: Any, identity: Identity) -> None:
    assert identity_for_key(APIKeyAuthenticator({KEY: owner}), KEY) == identity


@pytest.mark.parametrize(
    "key",
    [
        "",
        KEY[:-1],
        KEY + "x",
        KEY.upper(),
        f" {KEY}",
        f"{KEY}, {KEY}",
        f"{KEY}\0",
        HASH,
        hash_key(KEY),
        "x" * 5000,
        KEY + "x" * 2**20,
        "é",
        "\udcff",
    ],
    ids=lambda key: ascii(key[:50]),
)
def test_a_value_that_is_not_exactly_a_key_authenticates_no_caller(key: str) -> None:
    assert identity_for_key(APIKeyAuthenticator({KEY: "ci"}), key) is None


def test_a_key_that_is_not_utf_8_authenticates_no_caller() -> None:
    assert identity_for_key(APIKeyAuthenticator({KEY: "ci"}), "\ud800") is None


def test_a_caller_without_a_key_is_not_authenticated() -> None:
    assert (
        authenticate(APIKeyAuthenticator({KEY: "ci"}), {"authorization": f"Bearer {KEY}"}) is None
    )


def test_each_key_has_its_own_owner() -> None:
    keys = APIKeyAuthenticator({KEY: "first", SECOND_KEY: "other"})
    identities = [identity_for_key(keys, key) for key in (KEY, SECOND_KEY, KEY)]
    assert [identity.id for identity in identities if identity] == ["first", "other", "first"]


@pytest.mark.parametrize("header", ["X-Key", "x-key", "X-KEY"])
def test_the_header_is_configurable(header: str) -> None:
    keys = APIKeyAuthenticator({KEY: "ci"}, header=header)
    assert identity_for_key(keys, KEY, "x-key")
    assert not identity_for_key(keys, KEY)
    scheme = keys.security_schemes()["apiKey"].api_key_security_scheme
    assert (scheme.location, scheme.name) == ("header", header)


def test_api_keys_are_an_authenticator_that_declares_a_header() -> None:
    keys = APIKeyAuthenticator({KEY: "ci"})
    assert isinstance(keys, Authenticator)
    scheme = keys.security_schemes()["apiKey"].api_key_security_scheme
    assert (scheme.location, scheme.name) == ("header", "X-API-Key")


def test_a_key_may_have_non_ascii_letters() -> None:
    keys = APIKeyAuthenticator({"schlüssel-ключ-鍵": "ci"})
    assert identity_for_key(keys, "schlüssel-ключ-鍵")
    assert not identity_for_key(keys, "schlussel-ключ-鍵")


def test_a_non_ascii_key_is_accepted_when_decoded_as_latin_1() -> None:
    keys = APIKeyAuthenticator({"schlüssel-ключ-鍵": "ci"})
    assert identity_for_key(keys, "schlüssel-ключ-鍵".encode().decode("latin-1"))


@pytest.mark.parametrize("letter", ["ü", "鍵", "\U0001f511"])
def test_the_longest_non_ascii_key_is_accepted_when_decoded_as_latin_1(letter: str) -> None:
    longest = letter * MAX_KEY
    keys = APIKeyAuthenticator({longest: "ci", hash_key(longest + letter): "too long"})
    for header_value in (longest, longest.encode().decode("latin-1")):
        assert identity_for_key(keys, header_value)
    for header_value in (longest + letter, (longest + letter).encode().decode("latin-1")):
        assert not identity_for_key(keys, header_value)


def test_changing_an_identity_does_not_change_the_next_one() -> None:
    keys = APIKeyAuthenticator({KEY: {"id": "ci", "attrs": {"team": "a"}}})
    first = identity_for_key(keys, KEY)
    assert first
    first.attrs["team"] = "b"
    assert identity_for_key(keys, KEY) == Identity("ci", type="service", attrs={"team": "a"})


# Storage and comparison of keys


def test_keys_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return known == given

    keys = APIKeyAuthenticator({KEY: "first", SECOND_KEY: "other", "third": "third"})
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (KEY, SECOND_KEY, "wrong"):
        identity_for_key(keys, key)
    assert len(compared) == 9
    assert all(len(known) == len(given) == 32 for known, given in compared)


@pytest.mark.parametrize("name", [KEY, hash_key(KEY)])
def test_no_key_is_stored_in_plain_text(name: str) -> None:
    keys = APIKeyAuthenticator({name: CI})
    identity_for_key(keys, KEY)
    assert not [text for text in texts_within(keys) if KEY in text]
    assert KEY not in repr(keys)


def test_the_search_for_plain_text_keys_finds_one() -> None:
    assert [text for text in texts_within({"a": [b"x", ("y", KEY.encode())]}) if KEY in text]


def texts_within(root: object) -> list[str]:
    """Return all strings and bytes reachable from *root*, except through classes and callables."""
    seen, pending, texts = set[int](), [root], list[str]()
    while pending:
        value = pending.pop()
        if id(value) in seen or isinstance(value, type) or callable(value):
            continue
        seen.add(id(value))
        if isinstance(value, str | bytes):
            texts.append(value if isinstance(value, str) else value.decode("latin-1"))
        pending.extend(gc.get_referents(value))
    return texts


# Refused configurations


@pytest.mark.parametrize(
    "key", ["", "sha256:", f"sha256:{HASH[:-1]}", f"sha256:{HASH}0", "sha256:" + "x" * 64]
)
def test_an_empty_key_and_a_malformed_hash_are_refused(key: str) -> None:
    assert "64 hexadecimal digits" in refusal({key: "ci"})


@pytest.mark.parametrize(
    "owner",
    [
        "",
        {},
        {"id": ""},
        {"id": 5},
        {"id": None},
        {"id": "ci", "type": ""},
        {"id": "ci", "type": None},
        {"id": "ci", "roles": "operator"},
        {"id": "ci", "roles": ["operator", ""]},
        {"id": "ci", "roles": [5]},
        {"id": "ci", "role": "operator"},
        {"id": "ci", "sha256": HASH},
    ],
    ids=str,
)
def test_an_invalid_owner_is_refused_and_the_key_is_not_shown(owner: Any) -> None:
    text = refusal({KEY: owner})
    assert "roles" in text
    assert KEY not in text
    assert HASH not in text


@pytest.mark.parametrize(
    "owner",
    [5, None, {"id": "ci", "roles": 5}, {"id": "ci", "attrs": 5}, {"id": "ci", "attrs": ["team"]}],
    ids=str,
)
def test_an_owner_with_values_of_wrong_types_is_refused(owner: Any) -> None:
    refusal({KEY: owner})


@pytest.mark.parametrize(
    "keys",
    [{KEY: Identity("")}, {"\ud800": "ci"}, {"SHA256:x": "ci"}, {"x" * 5000: "ci"}, "keys.yaml"],
    ids=lambda keys: ascii(keys)[:20],
)
def test_keys_that_cannot_authenticate_a_caller_are_refused(keys: Any) -> None:
    refusal(keys)


def test_an_owner_may_be_any_mapping() -> None:
    keys = APIKeyAuthenticator({KEY: MappingProxyType(CI)})
    assert identity_for_key(keys, KEY)


def test_at_least_one_key_is_required() -> None:
    assert "at least one" in refusal({})


@pytest.mark.parametrize(
    "keys", [{KEY: "a", hash_key(KEY): "b"}, {hash_key(KEY): "a", f"SHA256:{HASH}": "b"}]
)
def test_a_key_may_be_listed_only_once(keys: Mapping[str, str]) -> None:
    text = refusal(keys)
    assert "once" in text
    assert KEY not in text


# Files


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_a_file_has_hashes_and_owners(write: Callable[[Any], str], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    second_hash = hash_key(SECOND_KEY).removeprefix("sha256:").upper()
    path.write_text(write({"keys": [{**CI, "sha256": HASH}, {"id": "b", "sha256": second_hash}]}))
    keys = APIKeyAuthenticator(path)
    assert identity_for_key(keys, KEY) == Identity("ci", type="service", roles=("operator",))
    assert identity_for_key(keys, SECOND_KEY) == Identity("b", type="service")


def test_the_format_in_the_error_message_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    example = refusal({KEY: {}}).partition("attrs: ")[2]
    path.write_text(example.replace("<64 hexadecimal digits>", HASH))
    assert identity_for_key(APIKeyAuthenticator(path), KEY)


MALFORMED_FILES: dict[str, bytes] = {
    "empty": b"",
    "a string": KEY.encode(),
    "a list": f"[{KEY}]".encode(),
    "without keys": f"key: {KEY}".encode(),
    "keys that are null": b"keys:",
    "keys that are a string": f"keys: {KEY}".encode(),
    "keys that are strings": f"keys: [{KEY}]".encode(),
    "keys that are numbers": b"keys: [5]",
    "a key in plain text": f"keys: [{{id: ci, key: {KEY}}}]".encode(),
    "not UTF-8": KEY.encode() + b"\xff\xfe",
    "not YAML": f"keys: [{KEY}".encode(),
    "two documents": f"keys: []\n---\n{KEY}".encode(),
    "an invalid date": f"{KEY}: 2024-13-45".encode(),
    "a command": f"keys: !!python/object/apply:os.system [{KEY}]".encode(),
    "a list that contains itself": b"keys: &a [*a]",
    "deep": b"[" * 5000,
    "an invalid time": b"keys: !!timestamp x",
}
INVALID_FILES: dict[str, bytes] = {
    "a key in place of a hash": f"keys: [{{id: ci, sha256: {KEY}}}]".encode(),
    "no owner": f"keys: [{{sha256: {HASH}}}]".encode(),
    "an unknown member": f"keys: [{{id: ci, sha256: {HASH}, {KEY}: 1}}]".encode(),
    "no entries": b"keys: []",
    "a hash twice": f"keys: [{{id: a, sha256: {HASH}}}, {{id: b, sha256: {HASH}}}]".encode(),
    "roles that are a number": f"keys: [{{id: a, sha256: {HASH}, roles: 5}}]".encode(),
}


def file_refusal(content: bytes, path: Path) -> str:
    path.write_bytes(content)
    text = refusal(path)
    assert KEY not in text
    assert HASH not in text
    return text


@pytest.mark.parametrize("name", MALFORMED_FILES)
def test_the_error_for_a_malformed_file_names_its_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert str(path) in file_refusal(MALFORMED_FILES[name], path)


@pytest.mark.parametrize("name", INVALID_FILES)
def test_the_error_for_invalid_entries_names_the_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert str(path) in file_refusal(INVALID_FILES[name], path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_the_error_for_an_unreadable_file_names_its_path(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / name) in refusal(tmp_path / name)
