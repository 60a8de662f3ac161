"""Errors of conversion and authentication.

ValueError              the error texts of these subclasses are safe to show to a caller
├── PartError           message parts are not valid input for a skill
│   └── MediaTypeError  the parts have a media type that the skill does not take
└── OutputError         the output of a module cannot be sent
TokenRefusedError       an authenticator refuses a token, for a reason that the caller may know
"""

import re
from collections.abc import Iterable
from enum import StrEnum

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


class PartError(ValueError):
    """Message parts that are not valid input for the skill (FR-MSG-003)."""


class MediaTypeError(PartError):
    """Message parts of a media type that the skill does not take (A2A 1.0 §3.3.2)."""


class OutputError(ValueError):
    """Module output that cannot be sent; the error text names the problem and the path to it.

    Attributes:
        path: Path to the value within the output, such as `.rows[3].price`.
    """

    def __init__(self, problem: str, keys: Iterable[str | int] = ()) -> None:
        self.path = "".join(f"[{k}]" if isinstance(k, int) else f".{clean(k, 60)}" for k in keys)
        super().__init__(f"{problem} at ${self.path}")


class RefusalReason(StrEnum):
    """The reasons for refusing a token, in the order of the checks.

    Senders of refused tokens get these words and nothing else about the token or the keys. All
    but the first two are given only for tokens with a valid signature, so forgers learn nothing.
    """

    MALFORMED = "malformed"
    SIGNATURE = "invalid signature"
    MISSING_CLAIM = "missing claim"
    NOT_VALID_YET = "not valid yet"
    EXPIRED = "expired"
    WRONG_ISSUER = "wrong issuer"
    WRONG_AUDIENCE = "wrong audience"
    NO_IDENTITY = "no identity"


class TokenRefusedError(Exception):
    """Refusal of a bearer token by an authenticator (RFC 6750 §3.1).

    Attributes:
        reason: The reason, which is sent to the caller.

    >>> TokenRefusedError(RefusalReason.EXPIRED)
    TokenRefusedError('Token refused: expired')
    """

    def __init__(self, reason: RefusalReason) -> None:
        self.reason = RefusalReason(reason)  # refuses any other text, which may be secret
        super().__init__(f"Token refused: {self.reason}")


def clean(text: str, limit: int = 1000) -> str:
    r"""Return *text* on one line: at most *limit* characters, no control characters except tabs.

    A line feed becomes a backslash and an n, so that a client cannot forge log lines (NFR-SEC-002).

    >>> print(clean("a\x1b[31m\nb"))
    a[31m\nb
    """
    if len(text) <= limit and text.isprintable():
        return text  # the usual case; saves microseconds several times per request
    encodable = text[:limit].encode("utf-8", "replace").decode()
    return CONTROL.sub("", encodable.replace("\n", "\\n"))[:limit]
