"""What can go wrong in a task store."""

from a2a.utils.errors import A2AError


class StoreFullError(A2AError):
    """The store has no room, and nothing that it may drop."""

    code = -32029
    message = "Too many tasks"
