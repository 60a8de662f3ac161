"""The exceptions of task stores.

```
StoreError
├── StoreFullError
├── StaleError
│   └── LeaseLostError
├── NotSavedError
├── RepeatedError
│   └── KeyReusedError
└── UnavailableError
    ├── DiskFullError
    ├── MissingError
    └── SchemaError
```
"""

from a2a.utils.errors import A2AError


class StoreError(Exception):
    """The root of the errors of stores."""


class StoreFullError(StoreError, A2AError):
    """The store has no room for another task, and no task that it may delete."""

    code = -32029
    message = "Too many tasks"


class StaleError(StoreError):
    """A change was based on outdated values of the task, or the task was deleted."""


class LeaseLostError(StaleError):
    """A change under an old lease was refused: the task was leased again."""


class NotSavedError(StoreError):
    """The end of a task could not be saved."""


class RepeatedError(StoreError):
    """A send was repeated with the same message; its task exists already.

    Attributes:
        task_id: the id of that task.
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id


class KeyReusedError(RepeatedError):
    """An idempotency key was reused for another message; `task_id` is the first message's task."""


class UnavailableError(StoreError, OSError):
    """The store can't be used: for example, it is unreachable or locked by another process."""


class DiskFullError(UnavailableError):
    """The store can be read, but its disk is full."""


class MissingError(UnavailableError):
    """The file of a store does not exist."""


class SchemaError(UnavailableError):
    """The store's tables do not exist yet, or their version is not the one this package knows."""

    def __init__(self, actual: int, supported: int) -> None:
        advice = (
            "update apcore-a2a-server" if actual > supported else "run apcore-a2a store migrate"
        )
        versions = f"version {actual}, but this package supports {supported}"
        super().__init__(
            f"The store's tables have {versions}: {advice}"
            if actual
            else f"The store has no tables yet: {advice}"
        )
