"""Skills of remote A2A agents as apcore modules, and modules as tools of language models."""

from .agent import RemoteAgent
from .config import remote_agents
from .destinations import DestinationRules
from .errors import RemoteFailedError, RemoteInputError, RemoteQuestion
from .receiver import WebhookReceiver
from .skills import RemoteSkill
from .tools import Tool, Tools, as_adk_tool, as_langchain_tool, tools

__all__ = [
    "DestinationRules",
    "RemoteAgent",
    "RemoteFailedError",
    "RemoteInputError",
    "RemoteQuestion",
    "RemoteSkill",
    "Tool",
    "Tools",
    "WebhookReceiver",
    "as_adk_tool",
    "as_langchain_tool",
    "remote_agents",
    "tools",
]
