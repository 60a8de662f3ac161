"""What users bring: the shapes that the server asks for."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Authenticator(Protocol):
    """Tells who is calling.

    It may have `security_schemes()` beside its method: the schemes that the Agent Card declares,
    by name, as the SDK's types or as OpenAPI has them. Without it a bearer token is declared.

    >>> class KnowsNobody:
    ...     def authenticate(self, headers): return None
    >>> isinstance(KnowsNobody(), Authenticator)
    True
    """

    def authenticate(self, headers: Mapping[str, str]) -> object | Awaitable[object | None] | None:
        """The identity behind *headers* (names in lower case), or ``None`` for nobody.

        An apcore Identity, for that is what modules and access rules get to see. Whatever it
        raises means that nobody can be known now: no request gets through.
        """
        ...


@runtime_checkable
class Registry(Protocol):
    """The part of apcore's Registry that is used here."""

    def list(self) -> Sequence[str]:
        """The ids of all modules."""
        ...

    def get_definition(self, module_id: str) -> object | None:
        """The descriptor of a module, or ``None``."""
        ...


@runtime_checkable
class Executor(Protocol):
    """The part of apcore's Executor that is used here."""

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        """Run a module to its end."""
        ...

    def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> AsyncIterator[Any]:
        """Run a module, giving what it puts out piece by piece."""
        ...

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        """Whether a module would run."""
        ...


def missing_methods(obj: object, protocol: type) -> list[str]:
    """The methods of *protocol* that *obj* lacks, for an error message at start-up.

    >>> missing_methods(object(), Registry)
    ['list', 'get_definition']
    """
    names = [name for name, member in vars(protocol).items() if callable(member)]
    return [n for n in names if n[0] != "_" and not callable(getattr(obj, n, None))]
