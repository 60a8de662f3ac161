"""What a task store refuses.

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
    """The root of what a store refuses."""


class StoreFullError(StoreError, A2AError):
    """There is no room for another task, and nothing that may be dropped."""

    code = -32029
    message = "Too many tasks"


class StaleError(StoreError):
    """A change was made from a version that the task does not have any more."""


class LeaseLostError(StaleError):
    """A change was made by who may not run the task any more."""


class NotSavedError(StoreError):
    """A task has ended, and the store that should keep it did not take it."""


class RepeatedError(StoreError):
    """A send has come again; its task is there already."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id


class KeyReusedError(RepeatedError):
    """Another message has come with the same key; its task is there."""


class UnavailableError(StoreError, OSError):
    """The store can't be used: it is another process's, can't be reached, or is too new."""


class MissingError(UnavailableError):
    """There is no store where one should be."""


class SchemaError(UnavailableError):
    """What is kept was made by another version of this package, or is not there yet."""

    def __init__(self, found: int, known: int) -> None:
        way = "update apcore-a2a-server" if found > known else "apcore-a2a store migrate"
        super().__init__(
            f"The store's tables have version {found}, and this package knows {known}: {way}"
            if found
            else f"The store has no tables yet: {way}"
        )
