"""What can go wrong beside a caller who is nobody: for that, authenticators answer None.

AuthError
├── ConfigurationError      (ValueError too) at start-up: the options make no sense
└── KeysUnavailableError    the issuer's keys can't be had now
"""


class AuthError(Exception):
    """Whatever this package raises."""


class ConfigurationError(AuthError, ValueError):
    """An authenticator can't work as it is set up; the text tells what to do."""


class KeysUnavailableError(AuthError):
    """The issuer's keys can't be had: nobody can be told from anybody now.

    Its text names the address and the kind of failure, and nothing that the other end said.
    """
