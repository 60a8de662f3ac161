"""What users bring: the shapes that the server asks for."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class Identity(Protocol):
    """The part of apcore's Identity that is used here."""

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
        """The roles that access rules may ask for."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Whatever else is known; the issuer is `iss`."""
        ...


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

    def authenticate(
        self, headers: Mapping[str, str]
    ) -> Identity | Awaitable[Identity | None] | None:
        """Return the identity behind *headers* (names in lower case), or ``None`` without one.

        An apcore Identity, for that is what modules and access rules get to see. Whatever it
        raises means that callers cannot be told apart now: no request gets through.
        """
        ...


@runtime_checkable
class Registry(Protocol):
    """The part of apcore's Registry that is used here.

    `get(module_id)` and `on(event, callback)` are used where a registry has them: the first tells
    streaming and synchronous modules from others, the second tells of changes.
    """

    def list(self) -> Sequence[str]:
        """Return the ids of all modules."""
        ...

    def get_definition(self, module_id: str) -> object | None:
        """Return the descriptor of a module, or ``None``."""
        ...


class Check(Protocol):
    """One check of a call that `Executor.validate` made."""

    @property
    def check(self) -> str:
        """Its name: `acl`, `module_lookup` and `schema` are told apart."""
        ...

    @property
    def passed(self) -> bool:
        """Whether the call passed it."""
        ...


class Validation(Protocol):
    """The outcome of `Executor.validate`; its `requires_approval` is read where it has one."""

    @property
    def valid(self) -> bool:
        """Whether the call would be made."""
        ...

    @property
    def checks(self) -> Sequence[Check]:
        """The checks that were made."""
        ...

    @property
    def errors(self) -> Sequence[Mapping[str, Any]]:
        """Faults of the call, in the form of apcore's errors."""
        ...


@runtime_checkable
class Executor(Protocol):
    """The part of apcore's Executor that is used here; all of it is required.

    An executor with apcore's pipeline (`current_strategy`) is called once: a step in the pipeline
    creates the task when nothing can refuse the call any more. Any other executor is asked by
    `validate` before the task is created, and then called.
    """

    @property
    def registry(self) -> Registry:
        """The modules."""
        ...

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        """Run a module to its end."""
        ...

    def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> AsyncIterator[Any]:
        """Run a module, and give its output in chunks."""
        ...

    def validate(
        self, module_id: str, inputs: Any = None, context: Any = None
    ) -> Validation | None:
        """Return what would refuse the call; ``None`` when nothing would."""
        ...


def missing_methods(obj: object, protocol: type) -> list[str]:
    """The methods of *protocol* that *obj* lacks, for an error message at start-up.

    >>> missing_methods(object(), Registry)
    ['list', 'get_definition']
    """
    names = [name for name, member in vars(protocol).items() if callable(member)]
    return [n for n in names if n[0] != "_" and not callable(getattr(obj, n, None))]
