"""Keys that callers hold."""

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
from apcore_a2a_core import Authenticator

from .tokens import known
from .tokens import silent as silent

KEY = "vTq0-first-key-of-the-tests-xK9z"
OTHER = "mW31-other-key-of-the-tests-bR7y"
HASH = hash_key(KEY).removeprefix("sha256:")
CI = {"id": "ci", "roles": ["operator"]}


def owner(authenticator: Authenticator, key: str, header: str = "x-api-key") -> Identity | None:
    return known(authenticator, {header: key})


def refusal(keys: Any) -> str:
    """Why there is no such authenticator."""
    with pytest.raises(ConfigurationError) as caught:
        APIKeyAuthenticator(keys)
    return str(caught.value)


# Who is known


@pytest.mark.parametrize("name", [KEY, hash_key(KEY), hash_key(KEY).upper()])
def test_a_key_is_given_itself_or_by_its_hash(name: str) -> None:
    keys = APIKeyAuthenticator({name: "ci"})
    assert owner(keys, KEY) == Identity("ci", type="service")


@pytest.mark.parametrize(
    ("given", "identity"),
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
def test_an_owner_is_told_of_in_three_ways(given: Any, identity: Identity) -> None:
    assert owner(APIKeyAuthenticator({KEY: given}), KEY) == identity


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
def test_what_is_not_exactly_a_key_is_nobodys(key: str) -> None:
    assert owner(APIKeyAuthenticator({KEY: "ci"}), key) is None


def test_what_is_no_text_is_nobodys_key() -> None:
    assert owner(APIKeyAuthenticator({KEY: "ci"}), "\ud800") is None


def test_who_has_no_key_is_nobody() -> None:
    assert known(APIKeyAuthenticator({KEY: "ci"}), {"authorization": f"Bearer {KEY}"}) is None


def test_each_key_has_its_own_owner() -> None:
    keys = APIKeyAuthenticator({KEY: "first", OTHER: "other"})
    found = [owner(keys, key) for key in (KEY, OTHER, KEY)]
    assert [identity.id for identity in found if identity] == ["first", "other", "first"]


@pytest.mark.parametrize("header", ["X-Key", "x-key", "X-KEY"])
def test_the_header_may_be_another(header: str) -> None:
    keys = APIKeyAuthenticator({KEY: "ci"}, header=header)
    assert owner(keys, KEY, "x-key")
    assert not owner(keys, KEY)
    scheme = keys.security_schemes()["apiKey"].api_key_security_scheme
    assert (scheme.location, scheme.name) == ("header", header)


def test_it_is_an_authenticator_that_declares_a_key_in_a_header() -> None:
    keys = APIKeyAuthenticator({KEY: "ci"})
    assert isinstance(keys, Authenticator)
    scheme = keys.security_schemes()["apiKey"].api_key_security_scheme
    assert (scheme.location, scheme.name) == ("header", "X-API-Key")


def test_a_key_may_have_letters_of_any_script() -> None:
    keys = APIKeyAuthenticator({"schlüssel-ключ-鍵": "ci"})
    assert owner(keys, "schlüssel-ключ-鍵")
    assert not owner(keys, "schlussel-ключ-鍵")


def test_a_key_of_any_script_is_known_as_it_arrives() -> None:
    keys = APIKeyAuthenticator({"schlüssel-ключ-鍵": "ci"})
    assert owner(keys, "schlüssel-ключ-鍵".encode().decode("latin-1"))


def test_what_happens_to_an_identity_does_not_happen_to_the_next() -> None:
    keys = APIKeyAuthenticator({KEY: {"id": "ci", "attrs": {"team": "a"}}})
    first = owner(keys, KEY)
    assert first
    first.attrs["team"] = "b"
    assert owner(keys, KEY) == Identity("ci", type="service", attrs={"team": "a"})


# What is kept, and how it is compared


def test_each_key_is_compared_in_a_time_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return known == given

    keys = APIKeyAuthenticator({KEY: "first", OTHER: "other", "third": "third"})
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (KEY, OTHER, "wrong"):
        owner(keys, key)
    assert len(compared) == 9
    assert all(len(known) == len(given) == 32 for known, given in compared)


@pytest.mark.parametrize("name", [KEY, hash_key(KEY)])
def test_no_key_is_kept(name: str) -> None:
    keys = APIKeyAuthenticator({name: CI})
    owner(keys, KEY)
    assert not [text for text in texts_within(keys) if KEY in text]
    assert KEY not in repr(keys)


def test_what_is_kept_would_be_found() -> None:
    assert [text for text in texts_within({"a": [b"x", ("y", KEY.encode())]}) if KEY in text]


def texts_within(root: object) -> list[str]:
    """All texts and bytes that there is a way to from *root*, but not through classes."""
    seen, todo, found = set[int](), [root], list[str]()
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen.add(id(each))
        if isinstance(each, str | bytes):
            found.append(each if isinstance(each, str) else each.decode("latin-1"))
        todo.extend(gc.get_referents(each))
    return found


# What is refused


@pytest.mark.parametrize(
    "key", ["", "sha256:", f"sha256:{HASH[:-1]}", f"sha256:{HASH}0", "sha256:" + "x" * 64]
)
def test_a_hash_that_is_none_is_refused(key: str) -> None:
    assert "64 hexadecimal digits" in refusal({key: "ci"})


@pytest.mark.parametrize(
    "given",
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
def test_an_owner_who_makes_no_sense_is_refused_and_the_key_is_not_shown(given: Any) -> None:
    text = refusal({KEY: given})
    assert "roles" in text
    assert KEY not in text
    assert HASH not in text


@pytest.mark.parametrize(
    "given",
    [5, None, {"id": "ci", "roles": 5}, {"id": "ci", "attrs": 5}, {"id": "ci", "attrs": ["team"]}],
    ids=str,
)
def test_an_owner_who_makes_no_sense_at_all_is_refused(given: Any) -> None:
    refusal({KEY: given})


@pytest.mark.parametrize(
    "keys",
    [{KEY: Identity("")}, {"\ud800": "ci"}, {"SHA256:x": "ci"}, {"x" * 5000: "ci"}, "keys.yaml"],
    ids=lambda keys: ascii(keys)[:20],
)
def test_keys_by_which_nobody_can_be_known_are_refused(keys: Any) -> None:
    refusal(keys)


def test_an_owner_may_be_any_mapping() -> None:
    keys = APIKeyAuthenticator({KEY: MappingProxyType(CI)})
    assert owner(keys, KEY)


@pytest.mark.parametrize(
    "keys", [{}, {KEY: "a", hash_key(KEY): "b"}, {hash_key(KEY): "a", f"SHA256:{HASH}": "b"}]
)
def test_each_key_is_there_once(keys: Mapping[str, str]) -> None:
    text = refusal(keys)
    assert "once" in text
    assert KEY not in text


# Files


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_a_file_has_hashes_and_owners(write: Callable[[Any], str], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    other = hash_key(OTHER).removeprefix("sha256:").upper()
    path.write_text(write({"keys": [{**CI, "sha256": HASH}, {"id": "b", "sha256": other}]}))
    keys = APIKeyAuthenticator(path)
    assert owner(keys, KEY) == Identity("ci", type="service", roles=("operator",))
    assert owner(keys, OTHER) == Identity("b", type="service")


def test_the_form_in_the_message_is_a_good_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    form = refusal({KEY: {}}).partition("attrs: ")[2]
    path.write_text(form.replace("<64 hexadecimal digits>", HASH))
    assert owner(APIKeyAuthenticator(path), KEY)


OF_NO_FORM: dict[str, bytes] = {
    "empty": b"",
    "a text": KEY.encode(),
    "a list": f"[{KEY}]".encode(),
    "without keys": f"key: {KEY}".encode(),
    "keys that are nothing": b"keys:",
    "keys that are a text": f"keys: {KEY}".encode(),
    "keys that are texts": f"keys: [{KEY}]".encode(),
    "keys that are numbers": b"keys: [5]",
    "a key itself": f"keys: [{{id: ci, key: {KEY}}}]".encode(),
    "not UTF-8": KEY.encode() + b"\xff\xfe",
    "not YAML": f"keys: [{KEY}".encode(),
    "two documents": f"keys: []\n---\n{KEY}".encode(),
    "a date that is none": f"{KEY}: 2024-13-45".encode(),
    "a command": f"keys: !!python/object/apply:os.system [{KEY}]".encode(),
    "itself": b"keys: &a [*a]",
}
OF_NO_SENSE: dict[str, bytes] = {
    "a key for a hash": f"keys: [{{id: ci, sha256: {KEY}}}]".encode(),
    "no owner": f"keys: [{{sha256: {HASH}}}]".encode(),
    "an unknown member": f"keys: [{{id: ci, sha256: {HASH}, {KEY}: 1}}]".encode(),
    "nobody": b"keys: []",
    "one twice": f"keys: [{{id: a, sha256: {HASH}}}, {{id: b, sha256: {HASH}}}]".encode(),
    "roles that are a number": f"keys: [{{id: a, sha256: {HASH}, roles: 5}}]".encode(),
    "deep": b"[" * 5000,
    "a time that is none": b"keys: !!timestamp x",
}


def complaint(content: bytes, path: Path) -> str:
    path.write_bytes(content)
    text = refusal(path)
    assert KEY not in text
    assert HASH not in text
    return text


@pytest.mark.parametrize("name", OF_NO_FORM)
def test_a_file_of_another_form_is_refused_by_its_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert str(path) in complaint(OF_NO_FORM[name], path)


@pytest.mark.parametrize("name", OF_NO_SENSE)
def test_a_file_that_makes_no_sense_is_refused_by_its_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert str(path) in complaint(OF_NO_SENSE[name], path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_refused_by_its_path(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / name) in refusal(tmp_path / name)
