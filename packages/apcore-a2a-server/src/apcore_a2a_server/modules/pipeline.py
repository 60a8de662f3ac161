"""Where the server takes part in what an executor does."""

from typing import Any


def install_steps(executor: Any) -> bool:
    """Whether the executor's pipeline has our steps now (apcore 0.16 and later)."""
    if not hasattr(executor, "current_strategy"):
        return False
    from .steps import put_into  # apcore has had its parts since 0.16

    return put_into(executor)
