"""A chain of authenticators, for agents with several kinds of credentials."""

from collections.abc import Iterator, Mapping
from inspect import isawaitable
from itertools import chain, count
from typing import Any

from a2a.types import SecurityScheme
from apcore_a2a_core import Authenticator, RefusalReason, TokenRefusedError

from .errors import ConfigurationError
from .schemes import bearer


class ChainAuthenticator:
    """An authenticator that tries others in turn and returns the first identity.

    If an authenticator raises, the next ones are still tried.

    Each authenticator has its own namespace of principals; a namespace whose name is taken is
    renamed, for example to `jwt2`.

    Args:
        authenticators: The authenticators, in the order in which they are tried.

    Raises:
        ConfigurationError: There are no authenticators.

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
            raise ConfigurationError("Give at least one authenticator")
        self._authenticators: list[Authenticator] = []
        for member in authenticators:
            nested = member._authenticators if isinstance(member, ChainAuthenticator) else [member]
            self._authenticators += nested
        self._namespaces: list[str] = []
        for authenticator in self._authenticators:
            namespace: Any = getattr(authenticator, "namespace", "")
            names = _numbered_names(namespace if isinstance(namespace, str) else "")
            self._namespaces.append(next(n for n in names if n not in self._namespaces))

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        """Return the first identity that an authenticator returns; None if there is none.

        Raises:
            TokenRefusedError: No authenticator accepted the caller, and at least one refused a
                token. After several refusals, the error has the reason that comes last in
                `RefusalReason`.
            Exception: No authenticator accepted the caller, and one failed with this exception; it
                takes precedence over refusals.
        """
        result = await self.namespaced_identity(headers)
        return None if result is None else result[1]

    async def namespaced_identity(self, headers: Mapping[str, str]) -> tuple[str, Any] | None:
        """Return the caller's namespace and identity; None if no authenticator accepts the caller.

        Raises:
            TokenRefusedError: As in `authenticate`.
            Exception: As in `authenticate`.
        """
        failure: Exception | None = None
        refusals: list[TokenRefusedError] = []
        for namespace, authenticator in zip(self._namespaces, self._authenticators, strict=True):
            try:
                result = authenticator.authenticate(headers)
                identity = await result if isawaitable(result) else result
            except TokenRefusedError as error:
                refusals.append(error)
            except Exception as error:  # users' own authenticators may raise anything
                failure = error
            else:
                if identity is not None:
                    return namespace, identity
        # the authenticator that failed might have accepted what the others refused
        if failure is not None:
            raise failure
        if refusals:
            raise max(refusals, key=lambda refusal: [*RefusalReason].index(refusal.reason))
        return None

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """Return all schemes for the Agent Card (FR-AUT-003); any one of them suffices.

        An authenticator without `security_schemes()` declares a bearer token. Schemes that
        differ but have the same name are numbered: the second is, for example, `bearer2`.
        """
        schemes: dict[str, SecurityScheme] = {}
        for authenticator in self._authenticators:
            declare: Any = getattr(authenticator, "security_schemes", _default_schemes)
            declared: Mapping[str, SecurityScheme] = declare()
            for name, scheme in declared.items():
                free_names = (
                    candidate
                    for candidate in _numbered_names(name)
                    if schemes.get(candidate, scheme) == scheme
                )
                schemes[next(free_names)] = scheme
        return schemes


def _default_schemes() -> Mapping[str, SecurityScheme]:
    return {"bearer": bearer()}


def _numbered_names(name: str) -> Iterator[str]:
    """Yield *name*, then *name* followed by 2, 3 and so on."""
    return chain([name], (f"{name}{number}" for number in count(2)))
