"""The agent's own routes for people who use and operate it, below `/apcore/`."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apcore_a2a_core import Identity

from apcore_a2a_server.bindings.own_routes import OwnRequest, OwnRoute
from apcore_a2a_server.engine.operators import Operators, matches

from .agent import Agent
from .options import Settings


def own_routes(agent: Agent, settings: Settings) -> list[OwnRoute]:
    """Return the routes of an agent below `/apcore/`."""
    identity_page = IdentityPage(settings, agent.handler.operators)
    return [OwnRoute("GET", "whoami", identity_page.show)]


def counts_as_operator(settings: Settings, rules: Operators, identity: Identity | None) -> bool:
    """Return whether a caller may use the routes for operators.

    Without authentication, all callers are one principal, which sees all tasks anyway.
    """
    return settings.auth is None or matches(rules.operators, identity)


class IdentityPage:
    """`GET /apcore/whoami`: who the caller is to the agent, and what it may do.

    Args:
        settings: The options.
        rules: The rules for operators and approvers.
    """

    def __init__(self, settings: Settings, rules: Operators) -> None:
        self._settings = settings
        self._rules = rules

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the identity of the caller, and what it may do beyond its own tasks."""
        caller, rules = request.caller, self._rules
        identity = caller.identity
        is_operator = counts_as_operator(self._settings, rules, identity)
        # without authentication, there is no content of others
        reads_content = rules.read_content or self._settings.auth is None
        reads = "content" if reads_content else "state"
        roles = () if identity is None else identity.roles or ()
        expires_at = None if identity is None else token_expiry(caller.headers)
        return {
            "authenticated": identity is not None,
            "principal": caller.principal or None,
            "roles": [*map(str, roles)],
            "operator": is_operator,
            "operatorReads": reads if is_operator else None,
            "approver": rules.is_approver(caller),
            "expiresAt": None if expires_at is None else timestamp(expires_at),
        }


def timestamp(seconds: float) -> str:
    """Return a time in seconds since 1970 as text (RFC 3339).

    >>> timestamp(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def token_expiry(headers: Mapping[str, str]) -> float | None:
    """Return when the bearer token of a request expires, in seconds since 1970; None if unknown.

    The authenticator has verified the token, if it is one of these; here it is only read, for the
    caller who has sent it.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    parts = token.strip().split(".")
    if scheme.lower() != "bearer" or len(parts) != 3:
        return None
    payload = parts[1]
    try:
        claims: Any = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expiry: float = claims["exp"]
        timestamp(expiry)
    except (ValueError, LookupError, TypeError, OverflowError, OSError):  # no claims, or no time
        return None
    return expiry
