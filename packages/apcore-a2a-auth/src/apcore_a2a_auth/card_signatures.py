"""Signatures of Agent Cards (A2A 1.0 §8.4): made by the server, verified by clients.

A signature covers a canonical form of the card: the specification's or the SDK's (see
`canonical_cards`). Both forms leave out members that A2A 1.0 does not define. The server signs both
forms, because some verifiers know only one of them, and one valid signature is enough.
"""

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from apcore_a2a_core.data import Json
from apcore_a2a_core.values import is_array, is_object
from jwt import PyJWTError, api_jws
from jwt.utils import base64url_encode

from .canonical_cards import CanonicalForm, canonical_forms
from .errors import CardSignatureError, ConfigurationError, KeysUnavailableError
from .key_sets import KeySets
from .keys import PUBLIC_KEY_ALGORITHMS, KeySource, VerificationKey, key_of_jwk, read_key
from .signing_keys import SigningKey, read_source

ALGORITHM = "ES256"
"""The algorithm that the server signs with, which verifiers commonly accept."""
MAX_SIGNATURES = 16
"""Maximum number of signatures of a card that are verified, because each takes time."""
NOT_VALID = "No signature of the card is valid: the card was changed, or signed with another key"


class CardSigner:
    """A signer of Agent Cards.

    With several keys, each signs the card, and a verifier needs to know only one of them. To change
    the key, add the new one, wait until all verifiers know it, and remove the old one.

    Each key signs the SDK's canonical form, and then the specification's if it differs.

    Args:
        keys: Private keys for ES256 (P-256): each in PEM, the path of a file, or a `SigningKey`.
        jku: URL at which the public keys are served.

    Raises:
        ConfigurationError: There are no keys, or one cannot be read or is for another algorithm.

    Example:
        ```python
        from apcore_a2a_auth import CardSigner, CardVerifier
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        private = generate_private_key(SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        signer = CardSigner([pem], "https://agent.example.com/.well-known/jwks.json")
        card = {"name": "weather", "version": "1.0"}
        card["signatures"] = signer.sign(card)

        print(CardVerifier(signer.jwks()).check(card))
        #> {'name': 'weather', 'version': '1.0'}
        ```
    """

    def __init__(self, keys: Sequence[SigningKey | KeySource], jku: str) -> None:
        self._keys = [
            key if isinstance(key, SigningKey) else _read_signing_key(key) for key in keys
        ]
        if not self._keys:
            raise ConfigurationError("Give at least one key")
        for key in self._keys:
            if key.algorithm != ALGORITHM:
                raise ConfigurationError(
                    f"A card is signed with {ALGORITHM}: give a private key for P-256, such as one "
                    "made by openssl ecparam -name prime256v1 -genkey -noout"
                )
        self._jku = jku

    def sign(self, card: Json) -> list[Json]:
        """Return the signatures of *card*, the JSON of a card, for its member `signatures`.

        Raises:
            ValueError: *card* is not the JSON of a card of A2A 1.0.
        """
        forms = canonical_forms(card)
        return [self._sign(form.payload, key) for key in self._keys for form in reversed(forms)]

    def jwks(self) -> Json:
        """Return the public keys as a JSON Web Key Set (RFC 7517 §5)."""
        return {"keys": [key.public_jwk for key in self._keys]}

    def _sign(self, payload: bytes, key: SigningKey) -> Json:
        header = {"kid": key.key_id, "jku": self._jku, "typ": "JOSE"}
        token = api_jws.encode(payload, key.private, key.algorithm, header)
        protected, _, signature = token.split(".")
        return {"protected": protected, "signature": signature}


class Signature(NamedTuple):
    """One signature of a card, with members of its protected header."""

    protected: str
    value: str
    algorithm: str
    key_id: str | None
    jku: str | None


class CardVerifier:
    """A verifier of Agent Cards, for `verify_card=` of `A2AClient`.

    A card is accepted if one of its signatures is valid for a known key and one of the card's
    canonical forms. The client then uses only the members that this form covers: those of A2A 1.0,
    and in the SDK's form only values that are not null, "", {} or [].

    Args:
        keys: Pinned public keys: each in PEM, the `Path` of a file, or a JSON Web Key; or a whole
            key set.
        jwks_url: URL of a key set. The keys are fetched again when a card is verified more than a
            minute after the last fetch; while fetches fail, the old keys are used for up to an
            hour.
        jku_origins: Origins such as `https://agents.example.com`. A key set that a card itself
            names (`jku`) is fetched only from these origins.
        algorithms: Accepted algorithms.

    Raises:
        ConfigurationError: No source of keys is given, or a key or another argument is invalid.

    Example:
        ```python
        from apcore_a2a_auth import CardVerifier
        from apcore_a2a_client import A2AClient, SyncA2AClient

        verifier = CardVerifier(jwks_url="https://agent.example.com/.well-known/jwks.json")
        client = A2AClient("https://agent.example.com", verify_card=verifier)
        client = SyncA2AClient("https://agent.example.com", verify_card=verifier.check)
        ```
    """

    def __init__(
        self,
        keys: Sequence[KeySource | Mapping[str, Any]] | Mapping[str, Any] = (),
        *,
        jwks_url: str | None = None,
        jku_origins: Collection[str] = (),
        algorithms: Collection[str] = ("ES256", "ES384", "EdDSA", "RS256", "PS256"),
    ) -> None:
        if isinstance(algorithms, str) or not {*algorithms} <= PUBLIC_KEY_ALGORITHMS:
            names = sorted(PUBLIC_KEY_ALGORITHMS)
            raise ConfigurationError(f"algorithms must be a list of any of {names}")
        if isinstance(keys, str | bytes | PathLike) or isinstance(jku_origins, str):
            raise ConfigurationError("keys and jku_origins must be lists")
        self._algorithms = frozenset(algorithms)
        sources: Any = keys.get("keys", [keys]) if isinstance(keys, Mapping) else keys
        self._pinned = [_read_pinned_key(key) for key in sources]
        self._sets = KeySets(jwks_url, jku_origins)
        if not (self._pinned or jwks_url or jku_origins):
            raise ConfigurationError("Give keys, jwks_url or jku_origins")

    async def __call__(self, card: Json) -> Json:
        """Call `check` in a thread, so that it does not block the event loop."""
        return await asyncio.to_thread(self.check, card)

    def check(self, card: Json) -> Json:
        """Return the signed members of *card*, the JSON of a card.

        If only a signature of the SDK's form is valid, empty values (null, "", {} and []) are left
        out at any depth: that form does not cover them, so anyone could have added them.

        Raises:
            CardSignatureError: *card* is not a card of A2A 1.0, or has no valid signature.
            KeysUnavailableError: No signature is valid, and a key set could not be fetched.
        """
        try:
            forms = canonical_forms(card)
        except ValueError:
            raise CardSignatureError("This is not a card of A2A 1.0") from None
        signatures = [*_read_signatures(card)]
        if not signatures:
            raise CardSignatureError("The card has no signature")
        return self._find_verified_form(forms, signatures).members

    def _find_verified_form(
        self, forms: Sequence[CanonicalForm], signatures: Sequence[Signature]
    ) -> CanonicalForm:
        """Return the first of *forms* for which one of *signatures* is valid.

        Raises:
            CardSignatureError: No signature is valid.
            KeysUnavailableError: No signature is valid, and a key set could not be fetched.
        """
        verified_form: CanonicalForm | None = None
        failure = CardSignatureError("No signature of the card is by a known key")
        unavailable: KeysUnavailableError | None = None
        for signature in signatures:
            try:
                for key in self._find_keys(signature):
                    form = _find_signed_form(forms, signature, key)
                    if form is None:
                        failure = CardSignatureError(NOT_VALID)
                        continue
                    if form == forms[0]:
                        return form
                    verified_form = form  # another signature may be valid for the first form
                    break
            except KeysUnavailableError as error:
                unavailable = error
        if verified_form is not None:
            return verified_form
        raise unavailable or failure  # a key that could not be fetched may be the right one

    def _find_keys(self, signature: Signature) -> Iterator[VerificationKey]:
        """Yield the keys that may verify *signature*.

        Pinned keys come first, because they need no request.

        Raises:
            KeysUnavailableError: A key set has not been fetched within the last hour.
        """
        if signature.algorithm not in self._algorithms:
            return
        for key_id, key in self._pinned:
            # `kid` is optional in keys and in signatures (RFC 7517 §4.5, RFC 7515 §4.1.4)
            may_match = None in (key_id, signature.key_id) or key_id == signature.key_id
            if may_match and signature.algorithm in key.algorithms:
                yield key
        for key in self._sets.find(signature.key_id, signature.jku):
            if signature.algorithm in key.algorithms:
                yield key


def _read_signatures(card: Json) -> Iterator[Signature]:
    """Yield the readable signatures among the first `MAX_SIGNATURES` of a card."""
    entries = card.get("signatures")
    for data in (entries if is_array(entries) else [])[:MAX_SIGNATURES]:
        if not is_object(data):
            continue
        protected, value = data.get("protected"), data.get("signature")
        if not (isinstance(protected, str) and isinstance(value, str)):
            continue
        try:
            header = json.loads(urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))
        except (ValueError, RecursionError):
            continue
        if not is_object(header) or "crit" in header:  # unsupported extensions (RFC 7515 §4.1.11)
            continue
        algorithm, key_id, jku = (header.get(name) for name in ("alg", "kid", "jku"))
        yield Signature(
            protected,
            value,
            algorithm if isinstance(algorithm, str) else "",
            key_id if isinstance(key_id, str) else None,
            jku if isinstance(jku, str) else None,
        )


def _find_signed_form(
    forms: Sequence[CanonicalForm], signature: Signature, key: VerificationKey
) -> CanonicalForm | None:
    """Return the first form for which *key* verifies *signature*; None if there is none."""
    for form in forms:
        payload = base64url_encode(form.payload).decode()
        token = f"{signature.protected}.{payload}.{signature.value}"
        try:
            api_jws.decode(token, key.key, [signature.algorithm])
        except (PyJWTError, UnicodeEncodeError):
            continue
        return form
    return None


def _read_signing_key(source: KeySource) -> SigningKey:
    """Return the key in *source*: PEM, or the path of a file as text or as a `Path`."""
    is_path = isinstance(source, str) and "-----BEGIN" not in source
    return SigningKey(Path(source) if is_path and isinstance(source, str) else source)


def _read_pinned_key(source: Any) -> tuple[str | None, VerificationKey]:
    """Return the id of a pinned key, which may be None, and the key."""
    if isinstance(source, Mapping):
        jwk: Json = {**source}
        key = key_of_jwk(jwk)
        if key is None or not key.algorithms:
            raise ConfigurationError("A pinned JSON Web Key is not a public key for signatures")
        key_id = jwk.get("kid")
        return key_id if isinstance(key_id, str) else None, key
    verification_key = read_key(read_source(source))
    if isinstance(verification_key.key, bytes):
        raise ConfigurationError("A pinned key must be a public key in PEM, not a secret")
    return None, verification_key
