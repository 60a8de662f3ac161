"""apcore modules as an adapter meets them: found, described, run, and asked for approval."""

from .approval import ApprovalPendingError, ClientApproval, call_key, install_approval
from .context import create_context
from .conversation import INPUT_REQUIRED, Conversation, InputRequiredError
from .current import Running, current
from .pipeline import install_steps
from .preflight import preflight
from .skills import Skill, Skills
from .threads import Threads, ThreadsError

__all__ = [
    "INPUT_REQUIRED",
    "ApprovalPendingError",
    "ClientApproval",
    "Conversation",
    "InputRequiredError",
    "Running",
    "Skill",
    "Skills",
    "Threads",
    "ThreadsError",
    "call_key",
    "create_context",
    "current",
    "install_approval",
    "install_steps",
    "preflight",
]
