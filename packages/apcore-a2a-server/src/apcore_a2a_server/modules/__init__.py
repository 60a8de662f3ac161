"""apcore modules as the server uses them: discovery, access, approval and execution.

The package exports the names that modules themselves import.
"""

from .conversation import INPUT_REQUIRED, Conversation, InputRequiredError

__all__ = ["INPUT_REQUIRED", "Conversation", "InputRequiredError"]
