"""From the claims of a token to an apcore Identity (FR-AUT-002)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from apcore import Identity
from apcore_a2a_core.schema import is_array, object_at

ID = re.compile(r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,255}")
"""What may be an id: one line of text that logs and stores can have."""
RESERVED = "system"
"""A type that apcore's access rules hold for the system itself, which has no token."""
TECHNICAL = frozenset({"aud", "exp", "iat", "jti", "nbf"})
"""Claims about the token itself (RFC 7519 §4.1), which tell nothing of its bearer."""


@dataclass(frozen=True, slots=True)
class ClaimMapping:
    """Which claims become what of an identity.

    A claim is named, or reached by a path with dots: `realm_access.roles` is the claim `roles`
    within `realm_access`, unless there is a claim with just that name.

    Attributes:
        id: The claim that is the identity's id, at most 255 characters in one line; a token
            without it is refused.
        type: The claim that is its type; `user` when it is not there.
        roles: The claim that holds its roles: an array, or a string with spaces or commas.
        attrs: Attributes and their claims; None for every claim that is not technical.

    Example:
        ```python
        from apcore_a2a_auth import ClaimMapping

        mapping = ClaimMapping(roles="realm_access.roles", attrs={"team": "org.team"})
        claims = {"sub": "ada", "realm_access": {"roles": ["admin"]}, "org": {"team": "math"}}
        print(mapping.identity(claims))
        #> Identity(id='ada', type='user', roles=('admin',), attrs={'team': 'math'})
        ```
    """

    id: str = "sub"
    type: str = "type"
    roles: str = "roles"
    attrs: Mapping[str, str] | None = None

    def identity(self, claims: Mapping[str, Any]) -> Identity | None:
        """The identity that *claims* tell of; None when they have no id."""
        name, kind = _at(claims, self.id), _at(claims, self.type)
        if not _is_plain(name):
            return None
        return Identity(
            id=name,
            type=kind if _is_plain(kind) and kind != RESERVED else "user",
            roles=_words(_at(claims, self.roles)),
            attrs=self._attrs(claims),
        )

    def _attrs(self, claims: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes, and the issuer in any case: ids are unique within it alone."""
        if self.attrs is None:
            return {name: value for name, value in claims.items() if name not in TECHNICAL}
        found = {name: _at(claims, path) for name, path in self.attrs.items()}
        issuer = {"iss": claims["iss"]} if "iss" in claims else {}
        return issuer | {name: value for name, value in found.items() if value is not None}


def _is_plain(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and ID.fullmatch(value) is not None


def _at(claims: Mapping[str, Any], path: str) -> Any:
    *parents, name = path.split(".")
    within = claims if path in claims else object_at(claims, *parents) or {}
    return within.get(path if path in claims else name)


def _words(value: Any) -> tuple[str, ...]:
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    return tuple(word for word in words if isinstance(word, str)) if is_array(words) else ()
