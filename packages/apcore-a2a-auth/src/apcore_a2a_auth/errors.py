"""Errors of this package.

AuthError
├── ConfigurationError      (also a ValueError) at start-up: the options are invalid
├── KeysUnavailableError    the keys for tokens or cards cannot be fetched
└── CardSignatureError      an Agent Card has no valid signature

A refused token is core's `TokenRefusedError`, which the server turns into a 401.
"""


class AuthError(Exception):
    """Base class of the errors of this package."""


class ConfigurationError(AuthError, ValueError):
    """Invalid options of an authenticator; the message says what to do."""


class KeysUnavailableError(AuthError):
    """Keys cannot be fetched, so tokens or cards cannot be verified at the moment.

    The message contains the URL, but nothing that its server sent.
    """


class CardSignatureError(AuthError):
    """An Agent Card without a valid signature by a known key; the message says what is wrong."""
