"""What an Agent Card says of an authenticator, to clients of A2A 1.0 and of 0.3 (FR-AUT-003)."""

from collections.abc import Mapping
from typing import Any

from a2a import types as a2a
from google.protobuf.json_format import MessageToDict


def declared(authenticator: object) -> dict[str, a2a.SecurityScheme]:
    """The security schemes of an authenticator, any one of which will do.

    Without `security_schemes()` it is taken to want bearer tokens.

    Raises:
        ValueError: What it declares is no security scheme.

    Example:
        ```python
        from apcore_a2a_server.middleware.schemes import declared

        print([*declared(object())])
        #> ['bearer']
        ```
    """
    declare: Any = getattr(authenticator, "security_schemes", None)
    found: Mapping[str, Any] = BEARER if declare is None else declare()
    return {name: _scheme(scheme) for name, scheme in found.items()}


def for_both(schemes: Mapping[str, a2a.SecurityScheme]) -> dict[str, Any]:
    """The members of a card that has each scheme in the form of 1.0 and of 0.3, in one object."""
    from a2a.compat.v0_3.conversions import to_compat_security_scheme  # 0.3's models take 60 ms

    merged: dict[str, Any] = {}
    for name, scheme in schemes.items():
        old = to_compat_security_scheme(scheme).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        merged[name] = {**MessageToDict(scheme), **old}
    return {"securitySchemes": merged, "security": [{name: []} for name in schemes]}


def challenge(schemes: Mapping[str, a2a.SecurityScheme]) -> str:
    """The scheme that `WWW-Authenticate` asks for: `Bearer`, unless only keys will do."""
    kinds = {scheme.WhichOneof("scheme") for scheme in schemes.values()}
    return "ApiKey" if kinds == {"api_key_security_scheme"} else "Bearer"


def _scheme(scheme: Any) -> a2a.SecurityScheme:
    if isinstance(scheme, a2a.SecurityScheme):
        return scheme
    if not isinstance(scheme, dict) or "type" not in scheme:
        raise ValueError("A security scheme has a type, as OpenAPI has them, or is the SDK's")
    from a2a.compat.v0_3.conversions import to_core_security_scheme
    from a2a.compat.v0_3.types import SecurityScheme

    return to_core_security_scheme(SecurityScheme.model_validate(scheme))


BEARER = {
    "bearer": a2a.SecurityScheme(
        http_auth_security_scheme=a2a.HTTPAuthSecurityScheme(scheme="bearer")
    )
}
