"""apcore modules as an adapter meets them: found, described, run, and asked for approval."""

from .access import Access, Verdict
from .approval import (
    ApprovalPendingError,
    ApprovalPolicy,
    Approvals,
    ClientApproval,
    Running,
    call_key,
    current,
    install_approval,
)
from .cards import Card, Cards, Profile
from .conversation import (
    INPUT_REQUIRED,
    Conversation,
    History,
    InputRequiredError,
    create_context,
    is_for_input,
)
from .skills import Skill, Skills
from .source import executor_of
from .steps import install_steps
from .threads import ThreadPool, ThreadPoolError

__all__ = [
    "INPUT_REQUIRED",
    "Access",
    "ApprovalPendingError",
    "ApprovalPolicy",
    "Approvals",
    "Card",
    "Cards",
    "ClientApproval",
    "Conversation",
    "History",
    "InputRequiredError",
    "Profile",
    "Running",
    "Skill",
    "Skills",
    "ThreadPool",
    "ThreadPoolError",
    "Verdict",
    "call_key",
    "create_context",
    "current",
    "executor_of",
    "install_approval",
    "install_steps",
    "is_for_input",
]
