"""Authentication of callers; tokens sent to remote agents; signatures of Agent Cards."""

from .api_keys import APIKeyAuthenticator, hash_key
from .card_signatures import CardSigner, CardVerifier
from .chain import ChainAuthenticator
from .claims import ClaimMapping
from .errors import AuthError, CardSignatureError, ConfigurationError, KeysUnavailableError
from .jwt import JWTAuthenticator
from .minting import forward_identity, mint
from .schemes import api_key, bearer, oauth2, open_id_connect
from .signing_keys import SigningKey

__all__ = [
    "APIKeyAuthenticator",
    "AuthError",
    "CardSignatureError",
    "CardSigner",
    "CardVerifier",
    "ChainAuthenticator",
    "ClaimMapping",
    "ConfigurationError",
    "JWTAuthenticator",
    "KeysUnavailableError",
    "SigningKey",
    "api_key",
    "bearer",
    "forward_identity",
    "hash_key",
    "mint",
    "oauth2",
    "open_id_connect",
]
