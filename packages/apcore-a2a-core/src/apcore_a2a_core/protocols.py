"""Protocols for the objects that users bring, such as authenticators, registries and executors."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class Identity(Protocol):
    """The part of apcore's Identity that the server uses."""

    @property
    def id(self) -> str:
        """The caller's id, unique within its issuer."""
        ...

    @property
    def type(self) -> str:
        """The kind of caller: `user`, `service` or another."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """The roles that access rules can require."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Other attributes of the caller, such as the issuer in `iss`."""
        ...


@runtime_checkable
class Authenticator(Protocol):
    """An object that identifies callers by the headers of their requests.

    It may also have a method `security_schemes()` that returns the schemes for the Agent Card by
    name, as objects of the SDK or JSON of OpenAPI. Without this method, the card declares a bearer
    token.

    It may also have a `namespace`: callers that are authenticated in different namespaces are
    different principals, even if their ids are equal. An authenticator that delegates to several
    authenticators has, instead of `namespace`, an asynchronous method
    `namespaced_identity(headers)`, which returns the namespace and the identity, or None.

    >>> class RefusesEveryone:
    ...     def authenticate(self, headers): return None
    >>> isinstance(RefusesEveryone(), Authenticator)
    True
    """

    def authenticate(
        self, headers: Mapping[str, str]
    ) -> Identity | Awaitable[Identity | None] | None:
        """Return the caller's identity, or None if *headers* have no valid credentials.

        Modules and access rules get the returned object, so it must be an apcore Identity.

        Args:
            headers: Headers of the request, with names in lower case.

        Raises:
            TokenRefusedError: The token is refused; the caller is sent the reason (401).
            Exception: Callers cannot be authenticated now; the request is refused (503).
        """
        ...


class CardSigner(Protocol):
    """A signer of Agent Cards (A2A 1.0 §8.4)."""

    def sign(self, card: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """Return the signatures of *card*, the JSON of a card."""
        ...

    def jwks(self) -> Mapping[str, Any]:
        """Return the public keys as a JSON Web Key Set."""
        ...


@runtime_checkable
class Registry(Protocol):
    """The part of apcore's Registry that the server uses.

    Two methods are optional: `get(module_id)` returns the module, so that the server sees whether
    it streams and whether it is synchronous; `on(event, callback)` subscribes to changes.
    """

    def list(self) -> Sequence[str]:
        """Return the ids of all modules."""
        ...

    def get_definition(self, module_id: str) -> object | None:
        """Return the descriptor of a module, or None if there is none."""
        ...


@runtime_checkable
class Companion(Protocol):
    """An object that runs with an agent, such as a connection to a remote agent.

    A server starts its companions before it listens, and closes them after its last task has
    ended. The agent runs even if a companion is not ready.

    A companion may also have a method `routes()` that returns ASGI applications by their paths.
    They are served without authentication, so they must check requests themselves. An optional
    method `public_keys()` returns JSON Web Keys, which are published with those of the card signer.

    >>> class Clock:
    ...     name = "clock"
    ...     async def start(self, registry): pass
    ...     async def aclose(self): pass
    ...     def is_ready(self): return True
    ...     def figures(self): return {"clock_ticks": 5}
    >>> isinstance(Clock(), Companion)
    True
    """

    @property
    def name(self) -> str:
        """Its name in the health check."""
        ...

    async def start(self, registry: Any) -> None:
        """Start, and return soon: longer work must continue in the background.

        Args:
            registry: The registry of the agent, for modules that the companion adds or removes.
        """
        ...

    async def aclose(self) -> None:
        """Stop everything that `start` has begun."""
        ...

    def is_ready(self) -> bool:
        """Return whether the companion works; if not, the health check and the metrics say so."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Return numbers for the metrics, by name.

        Each call must return the same names. The server adds up numbers of the same name from
        several companions. The names of the server's own metrics must not be used.
        """
        ...


class Check(Protocol):
    """A check of a call by `Executor.validate`."""

    @property
    def check(self) -> str:
        """Name of the check; the server knows `acl`, `module_lookup`, `module_id` and `schema`."""
        ...

    @property
    def passed(self) -> bool:
        """Whether the call passed it."""
        ...


class Validation(Protocol):
    """The result of `Executor.validate`; it may also have an attribute `requires_approval`."""

    @property
    def valid(self) -> bool:
        """Whether the call would be allowed."""
        ...

    @property
    def checks(self) -> Sequence[Check]:
        """The checks that were made."""
        ...

    @property
    def errors(self) -> Sequence[Mapping[str, Any]]:
        """Problems of the call, in the format of apcore's errors."""
        ...


@runtime_checkable
class Executor(Protocol):
    """The part of apcore's Executor that the server uses; all of it is required.

    If the executor has apcore's pipeline (`current_strategy`), the server adds a step that
    creates the task just before the module runs, when nothing can refuse the call any more. For
    executors without that pipeline, the server calls `validate` before it creates the task.
    """

    @property
    def registry(self) -> Registry:
        """The modules."""
        ...

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        """Run a module and return its output."""
        ...

    def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> AsyncIterator[Any]:
        """Run a module and yield its output in chunks."""
        ...

    def validate(
        self, module_id: str, inputs: Any = None, context: Any = None
    ) -> Validation | None:
        """Check a call without making it; None means that nothing would refuse the call."""
        ...


def missing_methods(obj: object, protocol: type) -> list[str]:
    """Return the methods of *protocol* that *obj* lacks, for an error message at start-up.

    >>> missing_methods(object(), Registry)
    ['list', 'get_definition']
    """
    names = [name for name, member in vars(protocol).items() if callable(member)]
    return [n for n in names if n[0] != "_" and not callable(getattr(obj, n, None))]
