"""Mapping of the claims of a token to an apcore Identity (FR-AUT-002)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from apcore import Identity
from apcore_a2a_core.values import is_array, object_at

ID = re.compile(r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,255}")
"""Valid ids: one non-blank line of up to 255 characters, no control, bidi or surrogate ones."""
RESERVED_TYPE = "system"
"""The type that apcore's access rules reserve for the system itself; no token may claim it."""
TECHNICAL_CLAIMS = frozenset({"aud", "exp", "iat", "jti", "nbf"})
"""Claims about the token itself, which say nothing about its bearer (RFC 7519 §4.1)."""


@dataclass(frozen=True, slots=True)
class ClaimMapping:
    """A mapping of claims to the members of an identity.

    A claim is given by its name or by a path with dots: `realm_access.roles` is the claim `roles`
    within `realm_access`, unless a claim is named `realm_access.roles`.

    Attributes:
        id: Claim with the id: one line of at most 255 characters. A token without it is refused.
        type: Claim with the type; if it is missing, invalid or `system`, the type is `user`.
        roles: Claim with the roles: an array, or a string with spaces or commas between them.
        attrs: Names of attributes, each with its claim; `iss` is added if the token has it. If
            None, all claims are attributes, except those about the token itself, such as `exp`.

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
        """Return the identity for *claims*, or None if they have no valid id."""
        subject, kind = _claim_at(claims, self.id), _claim_at(claims, self.type)
        if not is_valid_id(subject):
            return None
        return Identity(
            id=subject,
            type=kind if is_valid_id(kind) and kind != RESERVED_TYPE else "user",
            roles=_parse_roles(_claim_at(claims, self.roles)),
            attrs=self._attrs(claims),
        )

    def _attrs(self, claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes, with the issuer if known: ids are unique only within an issuer."""
        if self.attrs is None:
            return {name: value for name, value in claims.items() if name not in TECHNICAL_CLAIMS}
        selected = {name: _claim_at(claims, path) for name, path in self.attrs.items()}
        issuer = {"iss": claims["iss"]} if "iss" in claims else {}
        return issuer | {name: value for name, value in selected.items() if value is not None}


def is_valid_id(value: Any) -> TypeGuard[str]:
    """Return whether *value* can be the id of an identity."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


def _claim_at(claims: Mapping[str, Any], path: str) -> Any:
    if path in claims:
        return claims[path]
    *parents, name = path.split(".")
    return (object_at(claims, *parents) or {}).get(name)


def _parse_roles(value: Any) -> tuple[str, ...]:
    roles = value.replace(",", " ").split() if isinstance(value, str) else value
    return tuple(role for role in roles if isinstance(role, str)) if is_array(roles) else ()
