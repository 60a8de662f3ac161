"""Checks that every store must pass, for authors of stores.

Each check is a coroutine function. It takes a new, open, empty store, and raises an exception if
the store does not behave as the name of the check says.

```python
import asyncio

from apcore_a2a_server.store import InMemoryTaskStore
from apcore_a2a_server.store.testing import CHECKS

for check in CHECKS[:3]:
    asyncio.run(check(InMemoryTaskStore()))
print(len(CHECKS) > 20)
#> True
```

With pytest, use `@pytest.mark.parametrize("check", CHECKS)`.

For checks of your own, `record, lease = await begun(store)` creates a running task. `chunk_change`
and `state_change` return changes of the task, for `store.change`.
"""

from apcore_a2a_server.store.testing import (
    checks,
    lease_checks,
    message_checks,
    operator_checks,
    webhook_checks,
)

from .samples import CHECKS, LEASE, Check, begun, chunk_change, new_record, state_change

__all__ = [
    "CHECKS",
    "LEASE",
    "Check",
    "begun",
    "checks",
    "chunk_change",
    "lease_checks",
    "message_checks",
    "new_record",
    "operator_checks",
    "state_change",
    "webhook_checks",
]
