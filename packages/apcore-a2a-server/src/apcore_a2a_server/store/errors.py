"""The errors of task stores.

```
StoreError
├── StoreFullError
├── StaleError
│   └── LeaseLostError
├── NotSavedError
├── RepeatedError
│   └── KeyReusedError
└── UnavailableError
    ├── MissingError
    └── SchemaError
```
"""

from a2a.utils.errors import A2AError


class StoreError(Exception):
    """The root of the errors of stores."""


class StoreFullError(StoreError, A2AError):
    """There is no room for another task, and none that may be deleted."""

    code = -32029
    message = "Too many tasks"


class StaleError(StoreError):
    """A change was made from a version that the task does not have any more."""


class LeaseLostError(StaleError):
    """A change was made under a lease that another replica has taken over."""


class NotSavedError(StoreError):
    """The end of a task could not be saved."""


class RepeatedError(StoreError):
    """A send was repeated; its task is there already."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id


class KeyReusedError(RepeatedError):
    """An idempotency key was used for another message; the task of the first is there."""


class UnavailableError(StoreError, OSError):
    """The store can't be used: it is unreachable, locked by another process, or too new."""


class MissingError(UnavailableError):
    """There is no store where one should be."""


class SchemaError(UnavailableError):
    """The schema has another version than this package knows, or does not exist yet."""

    def __init__(self, found: int, known: int) -> None:
        way = "update apcore-a2a-server" if found > known else "apcore-a2a store migrate"
        super().__init__(
            f"The store's tables have version {found}, and this package knows {known}: {way}"
            if found
            else f"The store has no tables yet: {way}"
        )
