"""The options of `serve`, `async_serve` and `create_app`, with their meaning and defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from apcore_a2a_core import Authenticator, missing_methods
from apcore_a2a_core.dialects import MAX_ITEMS

from apcore_a2a_server.push import PushSettings

POSITIVE = ("execution_timeout", "input_timeout", "keep_alive", "task_ttl")
"""Options that are seconds, and more than none."""
YEAR = 365 * 24 * 3600
"""In seconds."""

COUNTS = (
    "max_tasks",
    "max_history",
    "max_events",
    "max_artifact",
    "max_body",
    "max_parts",
    "max_runs",
    "max_streams",
    "max_streams_per_client",
    "max_threads",
)
OPTIONAL_COUNTS = ("max_runs_per_client", "max_runs_per_skill")


class Options(TypedDict, total=False):
    """Keyword arguments of `serve`, `async_serve` and `create_app` (FR-SRV-002)."""

    name: str | None
    description: str | None
    version: str | None
    url: str | None
    auth: Authenticator | None
    acl: Any
    rate_limit: str | None
    skill_rate_limit: str | None
    rate_limit_storage: str
    access_log: bool
    task_store: Any
    cors_origins: Sequence[str] | None
    allowed_hosts: Sequence[str] | None
    push_notifications: bool | PushSettings
    explorer: bool
    explorer_path: str
    metrics: bool
    default_skill: str | None
    execution_timeout: float
    input_timeout: float
    shutdown_timeout: float
    keep_alive: float
    cancel_on_disconnect: bool
    disconnect_grace: float
    state_history: bool
    task_ttl: float
    max_tasks: int
    max_history: int
    max_events: int
    max_artifact: int
    max_body: int
    max_parts: int
    max_runs: int
    max_runs_per_client: int | None
    max_runs_per_skill: int | None
    max_streams: int
    max_streams_per_client: int
    max_threads: int
    schema_memo: bool
    watch: bool
    config: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The same, checked and with defaults.

    Attributes:
        name: The agent's name; else `project.name` of the config, else `apcore-agent`.
        description: What the agent does; else `project.description`, else the number of skills.
        version: The agent's version; else `project.version`, else `0.0.0`.
        url: The public address that the Agent Card tells; else made of host and port.
        auth: Tells who calls; without it anybody may. A `JWTAuthenticator` or another of
            `apcore_a2a_auth`, or any `Authenticator`.
        acl: Who may call what: an apcore ACL or the path of its file, for a folder or a registry;
            else what the config's `acl.root` names. An executor has its own.
        rate_limit: How often a principal, or an address without one, may ask for anything:
            `600/minute`, or several: `20/second;600/minute`.
        skill_rate_limit: How often it may call each skill.
        rate_limit_storage: Where both are counted, as the `limits` library names it; in memory
            each process counts for itself.
        access_log: Whether each request is logged, at INFO.
        task_store: Where tasks are kept: an address (`sqlite:///agent.db`, `postgresql://…`), a
            store of `apcore_a2a_server.store`, a user's with the seven methods of `TaskStore`, or
            one of a2a-sdk; else an `InMemoryTaskStore`.
        cors_origins: The origins whose web pages may call the agent; `["*"]` for any.
        allowed_hosts: The `Host` headers that are answered; else all.
        push_notifications: Whether webhooks are called; or how, as `PushSettings` of
            `apcore_a2a_server.push`.
        explorer: Whether there is a page to see and try the agent on, for anybody to read; what it
            calls asks who calls, like all. Needs `apcore-a2a-explorer`.
        explorer_path: Where that page is.
        metrics: Whether ``GET /metrics`` tells the operator's figures, to anybody who asks.
        default_skill: The skill that messages reach which name none.
        execution_timeout: Seconds that a run may take; a module's own limit may be shorter.
        input_timeout: Seconds that a paused task waits for its answer; then it fails.
        shutdown_timeout: Seconds that running tasks get to end in at shutdown.
        keep_alive: Seconds of silence after which a stream says that it is alive.
        cancel_on_disconnect: Whether a task is canceled when the last client that waits for it
            has hung up; tasks that were sent without waiting go on.
        disconnect_grace: Seconds in which such a client may come back.
        state_history: Whether tasks remember their former states in their metadata.
        task_ttl: Seconds that a conversation is kept after its tasks have ended.
        max_tasks: How many tasks are kept in memory; how many ended ones elsewhere.
        max_history: How many of its latest messages a conversation and a task hold.
        max_events: How many events a reader may be behind; one that is further behind gets the
            task as it is instead.
        max_artifact: The largest output that a task keeps, in bytes; a larger one fails it.
        max_body: The largest request body, in bytes.
        max_parts: How many parts a message may have, 1,000 at most.
        max_runs: How many tasks may run at a time.
        max_runs_per_client: How many of them a client may have: a principal, or an address.
        max_runs_per_skill: How many of them a skill may have.
        max_streams: How many streams may be open at a time.
        max_streams_per_client: How many of them a client may have: a principal, or an address.
        max_threads: How many synchronous modules may run at a time, and how many that were
            canceled may still be stuck in their threads beside them.
        watch: Whether the folder of modules is read again when files in it change.
        schema_memo: Whether the JSON Schemas of modules are remembered, instead of made three
            times a call.
        config: An apcore Config, asked for `project.*`.
    """

    name: str | None = None
    description: str | None = None
    version: str | None = None
    url: str | None = None
    auth: Authenticator | None = None
    acl: Any = None
    rate_limit: str | None = None
    skill_rate_limit: str | None = None
    rate_limit_storage: str = "memory://"
    access_log: bool = True
    task_store: Any = None
    cors_origins: Sequence[str] | None = None
    allowed_hosts: Sequence[str] | None = None
    push_notifications: bool | PushSettings = False
    explorer: bool = False
    explorer_path: str = "/explorer"
    metrics: bool = False
    default_skill: str | None = None
    execution_timeout: float = 300
    input_timeout: float = 3600
    shutdown_timeout: float = 30
    keep_alive: float = 15
    cancel_on_disconnect: bool = True
    disconnect_grace: float = 3
    state_history: bool = False
    task_ttl: float = 3600
    max_tasks: int = 10_000
    max_history: int = 100
    max_events: int = 1000
    max_artifact: int = 32 * 1024 * 1024
    max_body: int = 10 * 1024 * 1024
    max_parts: int = 1000
    max_runs: int = 2000
    max_runs_per_client: int | None = None
    max_runs_per_skill: int | None = None
    max_streams: int = 1000
    max_streams_per_client: int = 100
    max_threads: int = 64
    schema_memo: bool = True
    watch: bool = False
    config: Any = None

    def __post_init__(self) -> None:
        for option in POSITIVE:
            if not 0 < getattr(self, option) <= YEAR:
                raise ValueError(f"{option} must be greater than 0, and a year at most")
        for option in ("shutdown_timeout", "disconnect_grace"):
            if not 0 <= getattr(self, option) <= YEAR:
                raise ValueError(f"{option} must be 0 or more, and a year at most")
        given = [name for name in OPTIONAL_COUNTS if getattr(self, name) is not None]
        for option in (*COUNTS, *given):
            if not isinstance(getattr(self, option), int) or getattr(self, option) < 1:
                raise ValueError(f"{option} must be a whole number, 1 or more")
        if self.auth is not None and (missing := missing_methods(self.auth, Authenticator)):
            raise TypeError(f"auth: {type(self.auth).__name__} lacks {', '.join(missing)}")
        if self.max_parts > MAX_ITEMS:
            raise ValueError(f"max_parts must be at most {MAX_ITEMS}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        for host in self.allowed_hosts or ():
            if "*" in host.removeprefix("*.") and host != "*":
                raise ValueError("allowed_hosts: a * stands alone, or before the first dot")
        for option in ("cors_origins", "allowed_hosts"):
            if isinstance(getattr(self, option), str):
                raise ValueError(f"{option} must be a list of strings, not one string")

    def project(self, key: str) -> str:
        """What the config says of the project; "" when it says nothing."""
        value = self.config.get(f"project.{key}") if self.config is not None else None
        return "" if value is None else str(value)
