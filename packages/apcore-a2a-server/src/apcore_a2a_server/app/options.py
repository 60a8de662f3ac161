"""The options of `serve`, `async_serve` and `create_app`, each declared once.

`fields` explains what follows from a declaration: keywords, flags, help and docs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from apcore_a2a_server.fields import HOUR, SWITCH, TEXT, YEAR, OptionError, check, option
from apcore_a2a_server.push.settings import PushSettings

if TYPE_CHECKING:  # --help needs this module, and core is slow to import
    from apcore_a2a_core import Authenticator

T = TypeVar("T")

MIB = 1024 * 1024  # bytes
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PARTS = 1000
"""The longest array that the dialects read."""


def _seconds(default: float, help: str, **said: Any) -> float:
    bounds: dict[str, Any] = {} if "low" in said else {"above": 0}
    return option(default, help, **{"metavar": "SECONDS", "high": YEAR} | bounds | said)


def _count(default: T, help: str, **said: Any) -> T:
    return option(default, help, low=1, **said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that hardly any agent needs to change: what `limits` takes.

    In the shell they are options like all others: `--max-parts`.

    Raises:
        OptionError: A value makes no sense.

    Example:
        ```python
        from apcore_a2a_server import Limits

        print(Limits(max_parts=10).max_parts, Limits().max_history)
        #> 10 100
        ```
    """

    max_parts: int = _count(MAX_PARTS, "Parts per message.", section="Limits", high=MAX_PARTS)
    max_history: int = _count(100, "Messages kept per task and per conversation.")
    max_events: int = _count(1000, "Events a reader may lag before it gets the whole task instead.")
    max_artifact: int = _count(32 * MIB, "Largest output of a task.", metavar="BYTES")
    max_streams_per_client: int = _count(100, "Open streams per client.")
    disconnect_grace: float = _seconds(3, "Time a client has to reconnect to its task.", low=0)
    schema_cache: bool = option(True, "Keep the JSON Schemas of modules in memory.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `create_app` and `async_serve`; `docs/options.md` lists them (FR-SRV-002).

    Raises:
        OptionError: A value makes no sense.
        TypeError: `auth` is no authenticator.
    """

    name: str | None = option(None, "Name of the agent.", section="Agent", otherwise="project.name")
    description: str | None = option(None, "What the agent does.", otherwise="project.description")
    version: str | None = option(None, "Version of the agent.", otherwise="project.version")
    url: str | None = option(None, "Public address.", otherwise="host and port")
    default_skill: str | None = option(None, "Skill for messages that name none.")
    config: Any = option(None, "An apcore Config, asked for `project.*`.", in_shell=False)
    auth: "Authenticator | None" = option(
        None, "An authenticator, such as a `JWTAuthenticator`.", section="Access", in_shell=False
    )
    acl: Any = option(None, "File of apcore access rules.", kind=TEXT, otherwise="acl.root")
    cors_origins: Sequence[str] | None = option(None, "Origins whose pages may call; * for all.")
    allowed_hosts: Sequence[str] | None = option(None, "Host headers to answer.", otherwise="all")
    rate_limit: str | None = option(
        None, "Requests per client, such as 600/minute.", otherwise="any"
    )
    skill_rate_limit: str | None = option(None, "Calls per skill and client.", otherwise="any")
    rate_limit_storage: str = option("memory://", "Where rates are counted.", is_secret=True)
    task_store: Any = option(
        None,
        "Task store: sqlite:///FILE or postgresql://….",
        section="Tasks",
        name="store",
        kind=TEXT,
        otherwise="memory",
        is_secret=True,
    )
    task_ttl: float = _seconds(3600, "Time ended tasks are kept.")
    max_tasks: int = _count(10_000, "Tasks that are kept.")
    execution_timeout: float = _seconds(300, "Longest run of a skill.")
    input_timeout: float = _seconds(3600, "Longest wait of a paused task for input.")
    shutdown_timeout: float = _seconds(30, "Graceful-shutdown timeout of running tasks.", low=0)
    keep_alive: float = _seconds(15, "Interval of keep-alives on a silent stream.")
    cancel_on_disconnect: bool = option(True, "Cancel a task when its last client disconnects.")
    state_history: bool = option(False, "Record the former states of a task in its metadata.")
    max_runs: int = _count(2000, "Concurrent tasks.", section="Limits")
    max_runs_per_client: int | None = _count(None, "Concurrent tasks per client.", otherwise="all")
    max_runs_per_skill: int | None = _count(None, "Concurrent tasks per skill.", otherwise="all")
    max_threads: int = _count(64, "Synchronous modules that run at a time.")
    max_streams: int = _count(1000, "Open streams.")
    max_body: int = _count(10 * MIB, "Largest request body.", metavar="BYTES")
    limits: Limits = option(Limits(), "Rarely needed limits.", in_shell=False)
    explorer: bool = option(
        False, "Serve the explorer, a page to try skills.", section="Operations"
    )
    explorer_path: str = option("/explorer", "Path of the explorer.")
    metrics: bool = option(False, "Serve metrics at /metrics.")
    access_log: bool = option(True, "Log each request.")
    watch: bool = option(False, "Reload modules when their files change.")
    push_notifications: bool | PushSettings = option(
        False, "Call webhooks.", section="Webhooks", kind=SWITCH
    )

    def __post_init__(self) -> None:
        check(self)
        _check_auth(self.auth)
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise OptionError("url", "must begin with http:// or https://")
        for host in self.allowed_hosts or ():
            if "*" in host.removeprefix("*.") and host != "*":
                raise OptionError("allowed_hosts", "may have a * alone, or before the first dot")

    def project(self, key: str) -> str:
        """Return what the config says of the project; "" when it says nothing."""
        value = self.config.get(f"project.{key}") if self.config is not None else None
        return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Settings):
    """The options of `serve`: those of `create_app`, and those of a process that listens."""

    host: str = option("0.0.0.0", "Address to listen at.", section="Server")
    port: int = option(8000, "Port to listen at; 0 for any free one.", low=0, high=65535)
    root_path: str = option("", "Path prefix that a proxy strips.")
    request_timeout: float = _seconds(10, "Read timeout, longer for large bodies.", high=HOUR)
    log_level: str = option("info", "Least severe messages to log.", choices=LOG_LEVELS)
    log_format: str = option("text", "Log for people, or for machines.", choices=("text", "json"))


def _check_auth(auth: object) -> None:
    if auth is not None:
        from apcore_a2a_core import Authenticator, missing_methods

        if missing := missing_methods(auth, Authenticator):
            raise TypeError(f"auth: {type(auth).__name__} lacks {', '.join(missing)}")
