"""The options of `serve`, `async_serve` and `create_app`, with their meaning and defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypedDict

LATER = {
    "auth": "authentication",
    "push_notifications": "push notifications",
    "explorer": "the explorer page",
    "metrics": "metrics",
}


class Options(TypedDict, total=False):
    """Keyword arguments of `serve`, `async_serve` and `create_app` (FR-SRV-002)."""

    name: str | None
    description: str | None
    version: str | None
    url: str | None
    auth: Any
    task_store: Any
    cors_origins: Sequence[str] | None
    allowed_hosts: Sequence[str] | None
    push_notifications: bool
    explorer: bool
    metrics: bool
    default_skill: str | None
    execution_timeout: float
    shutdown_timeout: float
    keep_alive: float
    state_history: bool
    task_ttl: float
    max_tasks: int
    max_body: int
    max_threads: int
    schema_memo: bool
    config: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The same, checked and with defaults.

    Attributes:
        name: The agent's name; else `project.name` of the config, else `apcore-agent`.
        description: What the agent does; else `project.description`, else the number of skills.
        version: The agent's version; else `project.version`, else `0.0.0`.
        url: The public address that the Agent Card tells; else made of host and port.
        auth: An `Authenticator`; not available in this version.
        task_store: Where tasks are kept; else an `InMemoryTaskStore`.
        cors_origins: The origins whose web pages may call the agent; `["*"]` for any.
        allowed_hosts: The `Host` headers that are answered; else all.
        push_notifications: Not available in this version.
        explorer: Not available in this version.
        metrics: Not available in this version.
        default_skill: The skill that messages reach which name none.
        execution_timeout: Seconds that a run may take; a module's own limit may be shorter.
        shutdown_timeout: Seconds that running tasks get to end in at shutdown.
        keep_alive: Seconds of silence after which a stream says that it is alive.
        state_history: Whether tasks remember their former states in their metadata.
        task_ttl: Seconds that tasks in memory are kept after they have ended.
        max_tasks: How many tasks are kept in memory.
        max_body: The largest request body, in bytes.
        max_threads: How many synchronous modules may run at a time.
        schema_memo: Whether the JSON Schemas of modules are remembered, instead of made three
            times a call.
        config: An apcore Config, asked for `project.*`.
    """

    name: str | None = None
    description: str | None = None
    version: str | None = None
    url: str | None = None
    auth: Any = None
    task_store: Any = None
    cors_origins: Sequence[str] | None = None
    allowed_hosts: Sequence[str] | None = None
    push_notifications: bool = False
    explorer: bool = False
    metrics: bool = False
    default_skill: str | None = None
    execution_timeout: float = 300
    shutdown_timeout: float = 30
    keep_alive: float = 15
    state_history: bool = False
    task_ttl: float = 3600
    max_tasks: int = 10_000
    max_body: int = 10 * 1024 * 1024
    max_threads: int = 64
    schema_memo: bool = True
    config: Any = None

    def __post_init__(self) -> None:
        for option, what in LATER.items():
            if getattr(self, option):
                raise ValueError(f"{option}: {what} is not available in this version")
        for option in ("execution_timeout", "keep_alive", "task_ttl", "max_tasks", "max_body"):
            if not 0 < getattr(self, option) < inf:
                raise ValueError(f"{option} must be greater than 0, and finite")
        if self.max_threads < 1:
            raise ValueError("max_threads must be at least 1")
        if not 0 <= self.shutdown_timeout < inf:
            raise ValueError("shutdown_timeout must be 0 or more, and finite")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        for option in ("cors_origins", "allowed_hosts"):
            if isinstance(getattr(self, option), str):
                raise ValueError(f"{option} must be a list of strings, not one string")

    def project(self, key: str) -> str:
        """What the config says of the project; "" when it says nothing."""
        value = self.config.get(f"project.{key}") if self.config is not None else None
        return "" if value is None else str(value)
