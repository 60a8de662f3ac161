"""Several ways to be known."""

from collections.abc import Mapping
from inspect import isawaitable
from itertools import chain, count
from typing import Any

from a2a.types import SecurityScheme
from apcore_a2a_core import Authenticator

from .errors import ConfigurationError


class ChainAuthenticator:
    """Asks authenticators in turn; the first who knows the caller decides.

    One that can't tell now (it raises) stands in nobody's way who is known to another.

    Args:
        authenticators: Whom to ask, in this order.

    Raises:
        ConfigurationError: There are none.

    Example:
        ```python
        from apcore_a2a_auth import APIKeyAuthenticator, ChainAuthenticator, JWTAuthenticator

        tokens = JWTAuthenticator(key="0123456789abcdef0123456789abcdef")
        both = ChainAuthenticator(tokens, APIKeyAuthenticator({"a long random key": "ci"}))
        print([*both.security_schemes()])
        #> ['bearer', 'apiKey']
        ```
    """

    def __init__(self, *authenticators: Authenticator) -> None:
        if not authenticators:
            raise ConfigurationError("A chain needs authenticators")
        self._authenticators = authenticators

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        """Who calls; None for nobody.

        Raises:
            Exception: Whatever one of them raised, when no other knows the caller.
        """
        failed: Exception | None = None
        for authenticator in self._authenticators:
            try:
                found = authenticator.authenticate(headers)
                found = await found if isawaitable(found) else found
            except Exception as error:  # users' own authenticators raise what they like
                failed = error
                continue
            if found is not None:
                return found
        if failed is not None:
            raise failed
        return None

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """What the Agent Card says of them: any of their schemes will do (FR-AUT-003)."""
        result: dict[str, SecurityScheme] = {}
        for authenticator in self._authenticators:
            declare: Any = getattr(authenticator, "security_schemes", dict)
            declared: Mapping[str, SecurityScheme] = declare()
            for name, scheme in declared.items():
                others = (f"{name}{number}" for number in count(2))
                free = (n for n in chain([name], others) if result.get(n, scheme) == scheme)
                result[next(free)] = scheme
        return result
