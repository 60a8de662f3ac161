"""apcore modules as an adapter meets them: found, described, run, and asked for approval.

Here are the names for the modules themselves.
"""

from .conversation import INPUT_REQUIRED, Conversation, InputRequiredError

__all__ = ["INPUT_REQUIRED", "Conversation", "InputRequiredError"]
