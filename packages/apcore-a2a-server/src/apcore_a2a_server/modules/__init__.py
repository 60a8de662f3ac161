"""apcore modules as the server uses them: discovery, access, approval and execution.

The package exports the conversation of a call, for tests of modules. Modules themselves import from
`apcore_a2a_core`.
"""

from .conversation import Conversation

__all__ = ["Conversation"]
