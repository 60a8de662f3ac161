"""Signed Agent Cards (A2A 1.0 §8.4).

Verifiers of the SDK and of the specification accept the cards of our server. Our verifier accepts
cards that were signed in either way.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest
import rfc8785
from a2a.client import A2ACardResolver
from a2a.types import AgentCard
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_agent_card_signer,
    create_signature_verifier,
)
from apcore import ModuleAnnotations, Registry
from apcore_a2a_auth import (
    APIKeyAuthenticator,
    CardSignatureError,
    CardSigner,
    CardVerifier,
    ConfigurationError,
    KeysUnavailableError,
    SigningKey,
)
from apcore_a2a_client import A2AClient, CardRefusedError, SyncA2AClient
from apcore_a2a_server import create_app
from apcore_a2a_server.fields import OptionError
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt import PyJWK, get_algorithm_by_name

from tests.auth.tokens import ED25519, P256, RSA, KeyPair
from tests.client.raw import Request, Step, card, raw, reply
from tests.facade.processes import COMMAND, MODULES, free_port, process
from tests.server.modules import Echo
from tests.serving import running

pytestmark = pytest.mark.anyio

NEXT = KeyPair("next", "ES256", ec.generate_private_key(ec.SECP256R1()))
STRANGER = KeyPair("stranger", "ES256", ec.generate_private_key(ec.SECP256R1()))
CARD, KEYS = "/.well-known/agent-card.json", "/.well-known/jwks.json"
JKU = "https://agent.example.com/keys"


class AnnotatedEcho(Echo):
    """A module with default annotations; on the card, some of them are null or {}."""

    annotations = ModuleAnnotations()


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.register("echo", AnnotatedEcho())
    return registry


def get_json(url: str) -> Any:
    return httpx.get(url).raise_for_status().json()


def signed_by_sdk(card: dict[str, Any], key: KeyPair) -> dict[str, Any]:
    message = ParseDict(card, AgentCard())
    header: Any = {"alg": key.alg, "kid": key.kid, "jku": JKU, "typ": "JOSE"}
    create_agent_card_signer(key.private, header)(message)
    return MessageToDict(message)


def sdk_card(key: KeyPair, **members: Any) -> dict[str, Any]:
    """Return a card that the SDK has signed."""
    return signed_by_sdk(card("https://agent.example.com/", **members), key)


MEMBERS_03 = {
    "additionalInterfaces",
    "preferredTransport",
    "protocolVersion",
    "security",
    "supportsAuthenticatedExtendedCard",
    "url",
}


def specification_payload(card: dict[str, Any]) -> bytes:
    """Return the canonical form (§8.4.1) of a card of our server, computed from its JSON."""
    form = deepcopy(card)
    for name in {"signatures", *MEMBERS_03} & form.keys():
        del form[name]
    form["capabilities"].pop("stateTransitionHistory", None)
    for skill in form["skills"]:
        skill.pop("extensions", None)
        if not skill["examples"]:  # not REQUIRED, so an empty list is left out
            del skill["examples"]
    for scheme in form.get("securitySchemes", {}).values():
        for name in [name for name in scheme if not name.endswith("SecurityScheme")]:
            del scheme[name]
    return rfc8785.dumps(form)


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def signature_of(payload: bytes, key: KeyPair) -> dict[str, str]:
    """Return a signature for the member `signatures` of a card with this canonical form."""
    protected = encode(json.dumps({"alg": key.alg, "kid": key.kid, "typ": "JOSE"}).encode())
    value = get_algorithm_by_name(key.alg).sign(
        f"{protected}.{encode(payload)}".encode(), key.private
    )
    return {"protected": protected, "signature": encode(value)}


def header_of(signature: dict[str, str]) -> Any:
    return json.loads(urlsafe_b64decode(signature["protected"] + "=="))


def is_valid(signature: dict[str, str], payload: bytes, key: KeyPair) -> bool:
    signed = f"{signature['protected']}.{encode(payload)}".encode()
    value = urlsafe_b64decode(signature["signature"] + "==")
    return get_algorithm_by_name(key.alg).verify(signed, key.private.public_key(), value)


EMPTY_VALUES: dict[str, Any] = {"null": None, "text": "", "object": {}, "array": [], "no": False}
"""Members for the `params` of an extension; the SDK's form of a card keeps only `no`."""
FULL_CARD: dict[str, Any] = {
    "name": "full",
    "description": "",
    "version": "1 \U0001f600 \ufb33",
    "supportedInterfaces": [
        {"url": "https://a.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {
        "streaming": False,
        "extensions": [
            {
                "uri": "https://a.example/x",
                "params": {
                    **EMPTY_VALUES,
                    "nested": [None, {"deep": [[]]}, 1e21, 5e-7, 0.1, -3, 2.0**63],
                    "\ufb33": 1,
                    "\U0001f600": 2,  # sorted by UTF-16 code units, it comes first
                },
            }
        ],
    },
    "defaultInputModes": [],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "a", "name": "A", "description": "", "tags": []}],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}},
        "tls": {"mtlsSecurityScheme": {}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {"clientCredentials": {"tokenUrl": "https://a.example/t", "scopes": {}}}
            }
        },
    },
    "securityRequirements": [{"schemes": {"key": {}}}],
}
"""A card that is its own canonical form: only REQUIRED and optional members have default values."""


def signed_by_specification(card: dict[str, Any]) -> dict[str, Any]:
    return {**deepcopy(card), "signatures": [signature_of(rfc8785.dumps(card), P256)]}


def signed_by_us(card: dict[str, Any]) -> dict[str, Any]:
    return {**deepcopy(card), "signatures": CardSigner([P256.private_pem], JKU).sign(card)}


def params_of(card: dict[str, Any]) -> Any:
    return card["capabilities"]["extensions"][0]["params"]


def fail_if_called(_: Request) -> Iterable[Step]:
    raise AssertionError("an agent whose card is refused was called")


async def test_the_sdk_verifies_the_card_with_the_published_keys(registry: Registry) -> None:
    with running(registry, card_key=P256.private_pem.decode()) as url:
        requested_keys: list[tuple[str | None, str | None]] = []

        def find_key(key_id: str | None, jku: str | None) -> PyJWK:
            requested_keys.append((key_id, jku))
            keys = get_json(jku or "")["keys"]
            return PyJWK(next(key for key in keys if key["kid"] == key_id))

        verify = create_signature_verifier(find_key, ["ES256"])
        async with httpx.AsyncClient() as http:
            signed = await A2ACardResolver(http, url).get_agent_card(signature_verifier=verify)
            assert signed.skills[0].id == "echo"
        assert requested_keys == [(SigningKey(P256.private_pem).key_id, url + KEYS)]
        signed.skills[0].description += "!"
        with pytest.raises(InvalidSignaturesError):
            verify(signed)


@pytest.mark.parametrize("key", [P256, ED25519, RSA], ids=lambda key: key.alg)
def test_a_card_that_the_sdk_has_signed_is_accepted(key: KeyPair) -> None:
    signed = sdk_card(key, description="Grüße", skills=[{"id": "a", "name": "A", "tags": ["x"]}])
    for keys in ([key.pem], [key.jwk], {"keys": [key.jwk]}):
        accepted = CardVerifier(keys).check(signed)
        assert accepted["skills"][0]["id"] == "a"
        assert "signatures" not in accepted


async def test_clients_call_an_agent_whose_card_is_verified(registry: Registry) -> None:
    with running(registry, card_key=[P256.private_pem]) as url:
        for verifier in (CardVerifier(jwks_url=url + KEYS), CardVerifier([P256.pem])):
            async with A2AClient(url, verify_card=verifier) as client:
                assert await client.call("echo", {"text": "hi"})
            with SyncA2AClient(url, verify_card=verifier.check) as client:
                assert client.call("echo", {"text": "hi"})


def test_the_extended_card_and_the_cards_of_tenants_are_signed(registry: Registry) -> None:
    auth = APIKeyAuthenticator({"sesame-sesame-sesame": "ada"})
    options: Any = {"auth": auth, "tenants": ["skills"], "card_key": [P256.private_pem]}
    with running(registry, **options) as url:
        verifier = CardVerifier([P256.pem])
        headers = {"x-api-key": "sesame-sesame-sesame"}
        for path in ("/agent/authenticatedExtendedCard", "/echo" + CARD):
            verifier.check(httpx.get(url + path, headers=headers).raise_for_status().json())


def test_with_two_keys_a_card_is_accepted_by_verifiers_with_either_key(registry: Registry) -> None:
    two_keys = [P256.private_pem, NEXT.private_pem]
    with running(registry, card_key=two_keys[:1], url="https://agent.example.com") as url:
        etag_before = httpx.get(url + CARD).headers["etag"]
    with running(registry, card_key=two_keys, url="https://agent.example.com") as url:
        signed_card = get_json(url + CARD)
        assert httpx.get(url + CARD).headers["etag"] != etag_before
        key_ids = [SigningKey(key).key_id for key in two_keys for _ in ("SDK", "specification")]
        assert [header_of(signature)["kid"] for signature in signed_card["signatures"]] == key_ids
        for key in (P256, NEXT):
            CardVerifier([key.pem]).check(signed_card)
        with pytest.raises(CardSignatureError):
            CardVerifier([STRANGER.pem]).check(signed_card)
        key_set = get_json(url + KEYS)
        assert [key["kty"] for key in key_set["keys"]] == ["EC", "EC"]
        assert not any("d" in key for key in key_set["keys"])


CHANGES: dict[str, Any] = {
    "a changed description": lambda card: card.update(description="Pay here"),
    "a further skill": lambda card: card.update(skills=[{"id": "more"}]),
    "another URL": lambda card: card["supportedInterfaces"][0].update(url="https://evil.example"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_card_is_refused(change: Any) -> None:
    signed = sdk_card(P256)
    change(signed)
    with pytest.raises(CardSignatureError, match="changed, or signed with another key"):
        CardVerifier([P256.pem]).check(signed)


def test_unsigned_members_are_not_used() -> None:
    signed = {
        **sdk_card(P256),
        "url": "https://evil.example",
        "preferredTransport": "JSONRPC",
    }
    accepted = CardVerifier([P256.pem]).check(signed)
    assert not {"url", "preferredTransport"} & accepted.keys()


def test_served_cards_have_a_valid_signature_of_the_specification_form(registry: Registry) -> None:
    auth = APIKeyAuthenticator({"sesame-sesame-sesame": "ada"})
    options: Any = {"auth": auth, "tenants": ["skills"], "card_key": [P256.private_pem]}
    with running(registry, **options) as url:
        headers = {"x-api-key": "sesame-sesame-sesame"}
        for path in (CARD, "/agent/authenticatedExtendedCard", "/echo" + CARD):
            served = httpx.get(url + path, headers=headers).raise_for_status().json()
            annotations = params_of(served)["skills"]["echo"]["annotations"]
            assert (annotations["cache_key_fields"], annotations["extra"]) == (None, {})
            payload = specification_payload(served)
            assert [is_valid(s, payload, P256) for s in served["signatures"]] == [False, True]


def test_both_forms_of_a_card_are_signed() -> None:
    signed = signed_by_us(FULL_CARD)
    sdk_signature, specification_signature = signed["signatures"]
    assert header_of(sdk_signature).keys() == {"alg", "kid", "jku", "typ"}
    assert is_valid(specification_signature, rfc8785.dumps(FULL_CARD), P256)
    verify = create_signature_verifier(lambda *_: PyJWK(P256.jwk), ["ES256"])
    for signatures in ([sdk_signature], signed["signatures"], signed["signatures"][::-1]):
        verify(ParseDict({**FULL_CARD, "signatures": signatures}, AgentCard()))
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict({**FULL_CARD, "signatures": [specification_signature]}, AgentCard()))


def test_a_card_whose_forms_are_the_same_has_one_signature() -> None:
    unsigned = {
        **card("https://agent.example.com/", description="An agent"),
        "version": "1",
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "a", "name": "A", "description": "Does it", "tags": ["x"]}],
    }
    signed = signed_by_us(unsigned)
    (signature,) = signed["signatures"]
    assert is_valid(signature, rfc8785.dumps(unsigned), P256)
    assert CardVerifier([P256.pem]).check(signed) == unsigned


def test_a_card_signed_by_the_specification_is_accepted_with_all_its_values() -> None:
    accepted = CardVerifier([P256.pem]).check(signed_by_specification(FULL_CARD))
    assert accepted == MessageToDict(ParseDict(FULL_CARD, AgentCard()))
    assert params_of(accepted) == params_of(FULL_CARD)


def test_defaults_that_are_left_out_or_spelled_out_change_nothing() -> None:
    signed = signed_by_specification(FULL_CARD)
    accepted = CardVerifier([P256.pem]).check(signed)
    del signed["description"], signed["skills"][0]["tags"]  # REQUIRED, so they are signed
    signed["skills"][0]["examples"] = []
    signed["capabilities"]["extensions"][0]["required"] = False
    assert CardVerifier([P256.pem]).check(signed) == accepted


UNCOVERED_CHANGES: dict[str, Any] = {
    "null becomes text": lambda card: params_of(card).update(null=""),
    "null is removed": lambda card: params_of(card).pop("null"),
    "an object is added": lambda card: params_of(card).update(added={}),
    "an item is added": lambda card: params_of(card)["nested"].insert(0, None),
    "an optional default is added": lambda card: card.update(iconUrl=""),
    "a provider is added": lambda card: card.update(provider={}),
    "a security scheme is removed": lambda card: card["securitySchemes"].pop("tls"),
    "a security requirement is removed": lambda card: card["securityRequirements"].pop(),
}
"""Changes of `FULL_CARD` that the SDK's form does not cover."""


@pytest.mark.parametrize("change", UNCOVERED_CHANGES.values(), ids=UNCOVERED_CHANGES)
def test_empty_values_are_used_only_if_the_specification_signature_is_valid(change: Any) -> None:
    verifier = CardVerifier([P256.pem])
    signed = signed_by_specification(FULL_CARD)
    change(signed)
    with pytest.raises(CardSignatureError, match="changed"):
        verifier.check(signed)

    signed = signed_by_sdk(FULL_CARD, P256)
    accepted = verifier.check(signed)
    assert params_of(accepted) == {
        "no": False,
        "nested": params_of(FULL_CARD)["nested"][2:],
        "\ufb33": 1,
        "\U0001f600": 2,
    }
    assert accepted.keys().isdisjoint({"iconUrl", "provider", "securityRequirements"})
    assert accepted["securitySchemes"].keys() == {"key", "oauth"}
    change(signed)
    assert verifier.check(signed) == accepted

    signed = signed_by_us(FULL_CARD)
    change(signed)
    assert verifier.check(signed) == accepted


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_valid_signatures_the_one_that_covers_more_counts(order: int) -> None:
    signed = signed_by_us(FULL_CARD)
    signed["signatures"] = signed["signatures"][::order]
    assert params_of(CardVerifier([P256.pem]).check(signed)) == params_of(FULL_CARD)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unsigned": (card("https://agent.example.com/"), "no signature"),
    "an empty list": (card("https://agent.example.com/", signatures=[]), "no signature"),
    "a stranger": (sdk_card(STRANGER), "another key"),
    "another algorithm": (sdk_card(RSA), "known key"),
    "a lone surrogate": (
        card("/", signatures=[{**sdk_card(P256)["signatures"][0], "signature": "\ud800"}]),
        "another key",
    ),
    "empty header": (card("/", signatures=[{"protected": "e30", "signature": "AA"}]), "known key"),
}


@pytest.mark.parametrize(("document", "reason"), REFUSED.values(), ids=REFUSED)
async def test_the_client_refuses_a_card_with_a_clear_reason(document: Any, reason: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        return reply(document) if request.is_card else fail_if_called(request)

    with raw(script) as server:
        async with A2AClient(server.url, verify_card=CardVerifier([P256.pem])) as client:
            with pytest.raises(CardRefusedError, match=reason):
                await client.call("echo", {"text": "hi"})


@pytest.mark.parametrize(
    "document",
    [
        {"name": 1, "signatures": [{}]},
        {"signatures": "yes"},
        {"capabilities": {"extensions": [{"params": {"a": float("nan")}}]}, "signatures": [{}]},
    ],
)
def test_malformed_cards_are_refused(document: Any) -> None:
    with pytest.raises(CardSignatureError, match=r"not a card|no signature"):
        CardVerifier([P256.pem]).check(document)


def test_keys_at_a_url_in_the_card_are_fetched_only_from_an_allowed_origin() -> None:
    with raw(lambda _: reply({"keys": [STRANGER.jwk]})) as server:
        signer = CardSigner([SigningKey(STRANGER.private_pem, key_id="stranger")], server.url)
        unsigned = card("https://agent.example.com/")
        signed = {**unsigned, "signatures": signer.sign(unsigned)}
        with pytest.raises(CardSignatureError):
            CardVerifier([P256.pem]).check(signed)
        assert not server.requests
        assert CardVerifier(jku_origins=[server.url]).check(signed)["name"] == "raw"


def test_keys_that_cannot_be_fetched_raise_a_separate_error() -> None:
    with raw(lambda _: reply(b"", 500)) as server:
        verifier = CardVerifier(jwks_url=server.url)
        with pytest.raises(KeysUnavailableError, match="Cannot fetch"):
            verifier.check(sdk_card(P256))
        # the second signature is forged; the first may be valid, but its key cannot be fetched
        signed = sdk_card(P256)
        forged = {**sdk_card(NEXT)["signatures"][0], "signature": "AAAA"}
        both = {**signed, "signatures": [*signed["signatures"], forged]}
        with pytest.raises(KeysUnavailableError):
            CardVerifier([NEXT.pem], jwks_url=server.url).check(both)
        # a valid signature of the SDK's form is enough if the other cannot be verified
        CardVerifier([P256.pem], jwks_url=server.url).check(both)
        # a pinned key needs no server
        requests_before = len(server.requests)
        CardVerifier([P256.pem], jwks_url=server.url).check(sdk_card(P256))
        assert len(server.requests) == requests_before


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"keys": P256.pem},
        {"keys": ["a secret of more than 32 bytes, to be sure"]},
        {"keys": [{"kty": "EC"}]},
        {"jwks_url": "ftp://keys.example.com"},
        {"jwks_url": "https://:secret@keys.example.com"},
        {"jku_origins": "https://keys.example.com"},
        {"keys": [P256.pem], "algorithms": ["HS256"]},
    ],
)
def test_invalid_arguments_of_a_verifier_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigurationError):
        CardVerifier(**arguments)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"card_key": [P256.private_pem], "url": None}, "needs url"),
        ({"card_key": ["no-such-file.pem"]}, "Cannot read"),
        ({"card_key": [P256.pem]}, "public key"),
        ({"card_key": [RSA.private_pem]}, "P-256"),
    ],
)
def test_a_card_key_that_cannot_be_used_is_refused_at_the_start(
    registry: Registry, options: Any, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        create_app(registry, **{"url": "https://agent.example.com", **options})


@pytest.mark.process
@pytest.mark.smoke
def test_the_command_signs_with_the_keys_in_files(tmp_path: Path) -> None:
    files = []
    for key in (P256, NEXT):
        files.append(tmp_path / f"{key.kid}.pem")
        files[-1].write_bytes(key.private_pem)
    flags = [part for file in files for part in ("--card-key", str(file))]
    url = "https://agent.example.com"
    (tmp_path / "echo.py").write_text(MODULES["echo.py"])
    port = free_port()
    arguments = ["serve", "echo.py", "--host", "127.0.0.1", "--port", str(port), "--url", url]
    with process([*COMMAND, *arguments, *flags], tmp_path) as agent:
        signed_card = agent.wait_for_card(f"http://127.0.0.1:{port}")
        assert header_of(signed_card["signatures"][0])["jku"] == url + KEYS
        for key in (P256, NEXT):
            CardVerifier([key.pem]).check(signed_card)
        assert "process list" not in agent.log  # no warning: a path is no secret
