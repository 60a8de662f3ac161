"""`apcore_a2a_auth` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_auth import (
        APIKeyAuthenticator,
        AuthError,
        ChainAuthenticator,
        ClaimMapping,
        ConfigurationError,
        JWTAuthenticator,
        KeysUnavailableError,
        api_key,
        bearer,
        hash_key,
        oauth2,
        open_id_connect,
    )
except ModuleNotFoundError as error:
    raise missing(error, "auth", "apcore_a2a.auth") from None

__all__ = [
    "APIKeyAuthenticator",
    "AuthError",
    "ChainAuthenticator",
    "ClaimMapping",
    "ConfigurationError",
    "JWTAuthenticator",
    "KeysUnavailableError",
    "api_key",
    "bearer",
    "hash_key",
    "oauth2",
    "open_id_connect",
]
