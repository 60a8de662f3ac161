"""Errors of this package.

AuthError
├── ConfigurationError      an option or a key is invalid; also a ValueError
├── KeysUnavailableError    the keys for tokens or cards cannot be fetched
└── CardSignatureError      an Agent Card has no valid signature

A refused token raises core's `TokenRefusedError`, which the server turns into a 401.
"""


class AuthError(Exception):
    """Base class of the errors of this package."""


class ConfigurationError(AuthError, ValueError):
    """An invalid option or key; the message says what is wrong."""


class KeysUnavailableError(AuthError):
    """Keys cannot be fetched, so tokens or cards cannot be verified at the moment.

    The message contains the URL, but nothing that its server sent.
    """


class CardSignatureError(AuthError):
    """An Agent Card without a valid signature by a known key; the message says what is wrong."""
