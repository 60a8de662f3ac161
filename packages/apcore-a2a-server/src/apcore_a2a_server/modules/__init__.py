"""apcore modules as an adapter meets them: found, described, run, and asked for approval."""

from .access import Access, Verdict
from .approval import ApprovalPendingError, ClientApproval, Gate, install_approval
from .approvals import Approvals, call_key
from .cards import Card, Cards, Profile
from .context import create_context
from .conversation import INPUT_REQUIRED, Conversation, History, InputRequiredError
from .current import Running, current
from .pause import Pause, is_for_input, is_over
from .pipeline import install_steps
from .preflight import preflight
from .skills import Skill, Skills
from .source import executor_of
from .threads import Threads, ThreadsError

__all__ = [
    "INPUT_REQUIRED",
    "Access",
    "ApprovalPendingError",
    "Approvals",
    "Card",
    "Cards",
    "ClientApproval",
    "Conversation",
    "Gate",
    "History",
    "InputRequiredError",
    "Pause",
    "Profile",
    "Running",
    "Skill",
    "Skills",
    "Threads",
    "ThreadsError",
    "Verdict",
    "call_key",
    "create_context",
    "current",
    "executor_of",
    "install_approval",
    "install_steps",
    "is_for_input",
    "is_over",
    "preflight",
]
