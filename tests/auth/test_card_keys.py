"""The choice of the keys that a card's signature is verified with, by its `kid`."""

from typing import Any

import pytest
from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from apcore_a2a_auth import CardSignatureError, CardVerifier
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.client.raw import card, raw, reply

from .tokens import ED25519, P256, KeyPair


def signed_card(key: KeyPair, **header: str) -> dict[str, Any]:
    """Return a card that the SDK has signed, with these further members of the header."""
    message = ParseDict(card("https://agent.example.com/"), AgentCard())
    protected: Any = {"alg": key.alg, "typ": "JOSE", **header}
    create_agent_card_signer(key.private, protected)(message)
    return MessageToDict(message)


PINNED: dict[str, Any] = {
    "PEM": [P256.pem],
    "a JSON Web Key": [P256.jwk],
    "a JSON Web Key without kid": [{k: v for k, v in P256.jwk.items() if k != "kid"}],
    "a key set": {"keys": [ED25519.jwk, P256.jwk]},
}


@pytest.mark.parametrize("keys", PINNED.values(), ids=PINNED)
def test_a_signature_without_kid_is_verified_with_each_pinned_key(keys: Any) -> None:
    assert CardVerifier(keys).check(signed_card(P256))["name"] == "raw"


def test_a_signature_without_kid_is_verified_with_each_fetched_key() -> None:
    with raw(lambda _: reply({"keys": [ED25519.jwk, P256.jwk]})) as server:
        assert CardVerifier(jwks_url=server.url).check(signed_card(P256))["name"] == "raw"


@pytest.mark.parametrize("keys", PINNED.values(), ids=PINNED)
def test_a_signature_without_kid_by_another_key_is_refused(keys: Any) -> None:
    stranger = KeyPair("stranger", "ES256", ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(CardSignatureError, match="another key"):
        CardVerifier(keys).check(signed_card(stranger))


def test_a_signature_with_another_kid_is_not_verified_with_a_pinned_json_web_key() -> None:
    with pytest.raises(CardSignatureError, match="known key"):
        CardVerifier([P256.jwk]).check(signed_card(P256, kid="another"))
