"""The options of `serve`, `async_serve` and `create_app`, each declared once.

`fields` derives keywords, flags, help texts and docs from the declarations.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from apcore_a2a_server.fields import (
    FILES,
    HOUR,
    PAIRS,
    SWITCH,
    TEXT,
    YEAR,
    OptionError,
    check,
    option,
)
from apcore_a2a_server.push.settings import PushSettings

from .tenant_names import read_tenants

if TYPE_CHECKING:  # --help needs this module, and core is slow to import
    from apcore_a2a_core import Authenticator, Companion

    from apcore_a2a_server.middleware.auth import ClientKey

T = TypeVar("T")

MIB = 1024 * 1024  # bytes
NOT_A_HOST_NAME = re.compile(r"[/@?#\s]|^[^:]*:[^:]*$|\]:|^$")
"""Pattern of URLs, names with a port, and empty texts.

IPv6 addresses do not match, because they have several colons.
"""
LOG_LEVELS = ("debug", "info", "warning", "error")
GRPC_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/:\[\]]+):\d{1,5}")
AUTH_RATE_LIMIT = "100/minute"
MAX_VALUES = 100_000
MAX_PARTS = 1000
"""Default and maximum of `max_parts`; the dialects refuse longer arrays (see `MAX_ITEMS`)."""


def _seconds(default: float, help: str, **attributes: Any) -> float:
    above = None if "low" in attributes else 0
    attributes = {"metavar": "SECONDS", "high": YEAR, "above": above} | attributes
    return option(default, help, **attributes)


def _count(default: T, help: str, **attributes: Any) -> T:
    return option(default, help, low=1, **attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Rarely changed limits: the value of the option `limits`.

    The command has a flag for each, such as `--max-parts`.

    Raises:
        OptionError: An option has an invalid value.

    Example:
        ```python
        from apcore_a2a_server import Limits

        print(Limits(max_parts=10).max_parts, Limits().max_history)
        #> 10 100
        ```
    """

    memory: int = option(
        256 * MIB, "Memory for tasks and request bodies.", section="Limits", metavar="BYTES"
    )
    max_parts: int = _count(MAX_PARTS, "Parts per message.", high=MAX_PARTS)
    max_values: int = _count(MAX_VALUES, "JSON values per request body.")
    max_history: int = _count(100, "Messages kept per task and per conversation.")
    max_events: int = _count(
        1000, "Events a stream may be behind; beyond that, it gets the whole task."
    )
    max_artifact: int = _count(32 * MIB, "Largest output of one task.", metavar="BYTES")
    max_streams_per_client: int = _count(100, "Concurrent streams per client.")
    disconnect_grace: float = _seconds(3, "Time for a client to reconnect to its task.", low=0)
    client_share: float | None = option(
        0.5,
        "Share of runs, streams, threads, processes and memory per client; 1 for no limit.",
        metavar="SHARE",
        above=0,
        high=1,
    )
    schema_cache: bool = option(True, "Cache JSON Schemas of modules.")

    def __post_init__(self) -> None:
        check(self)


def _expect_limits(value: object) -> None:
    if not isinstance(value, Limits):
        raise TypeError(f"limits takes Limits(…), not {type(value).__name__}")


def _check_rule(name: str, rule: Any, *, has_auth: bool) -> None:
    """Check a rule about identities: a role, or a function."""
    if rule is None:
        return
    if not (callable(rule) or (isinstance(rule, str) and rule.strip())):
        raise OptionError(name, f"must be a role, or a function of an identity, not {rule!r}")
    if not has_auth:
        raise OptionError(name, "needs auth: without it, callers have no roles")


def _check_memory(memory: int, max_body: int) -> None:
    """Check that the largest body leaves an eighth of the memory to other clients."""
    minimum = math.ceil(max_body * 8 / 7)
    if memory < minimum:
        problem = f"must be {minimum} or more, for one request of max_body ({max_body} bytes)"
        raise OptionError("memory", f"{problem}, not {memory}; raise it, or lower max_body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `create_app` and `async_serve`; `docs/options.md` lists them (FR-SRV-002).

    Raises:
        OptionError: An option has an invalid value.
        TypeError: `auth` is not an authenticator, `limits` not a `Limits`, or `client_key` not a
            function.
    """

    name: str | None = option(None, "Name of the agent.", section="Agent", otherwise="project.name")
    description: str | None = option(None, "Agent description.", otherwise="project.description")
    version: str | None = option(None, "Version of the agent.", otherwise="project.version")
    url: str | None = option(
        None, "Public URL of the agent.", otherwise="host and port; in an app, those of the request"
    )
    grpc_url: str | None = option(
        None, "Public gRPC address, such as agent.example.com:443.", otherwise="url and grpc_port"
    )
    card_key: Any = option(
        None,
        "Private key (PEM, P-256) that signs the Agent Card; with several keys, each signs it.",
        kind=FILES,
        otherwise="not signed",
        is_secret=True,
    )
    default_skill: str | None = option(
        None,
        'Skill for messages that do not name one; "ask" lets the client choose.',
        otherwise="the only skill",
    )
    text_results: bool = option(
        False, "Also send data in results as text, for clients that read only text."
    )
    tenants: Any = option(
        None,
        'Skill to serve as an agent at /NAME; "skills" serves every skill.',
        name="tenant",
        kind=PAIRS,
    )
    openapi: Any = option(
        None,
        "OpenAPI 3 document of an API to serve.",
        kind=TEXT,
        metavar="URL|FILE",
        is_secret=True,
    )
    openapi_server: str | None = option(
        None, "Base URL for calls of the API.", metavar="URL", otherwise="servers in the document"
    )
    allow_empty: bool = option(False, "Start without modules; they may be registered later.")
    companions: Sequence["Companion"] = option(
        (), "Objects that run with the agent, such as `RemoteAgent`."
    )
    config: Any = option(None, "apcore Config that provides `project.*`.")
    auth: "Authenticator | None" = option(
        None, "Authenticator, such as a `JWTAuthenticator`.", section="Access"
    )
    acl: Any = option(None, "File with apcore access rules.", kind=TEXT, otherwise="acl.root")
    operators: Any = option(
        None,
        "Role whose holders may see, answer and cancel all tasks.",
        kind=TEXT,
        metavar="ROLE",
        otherwise="none",
    )
    operators_read: str = option(
        "metadata",
        'What operators read of others\' tasks; "content" adds inputs and results.',
        choices=("metadata", "content"),
    )
    approvers: Any = option(
        None,
        "Role whose holders decide other callers' requests for approval.",
        kind=TEXT,
        metavar="ROLE",
        otherwise="the requester decides",
    )
    cors_origins: Sequence[str] | None = option(None, "Web origins that may call; * for all.")
    allowed_hosts: Sequence[str] | None = option(
        None,
        "Host names to serve; * for all.",
        otherwise="all; on loopback without auth, only local ones",
    )
    rate_limit: str | None = option(
        None, "Requests per client, such as 600/minute.", otherwise="no limit"
    )
    skill_rate_limit: str | None = option(None, "Calls per skill and client.", otherwise="no limit")
    total_skill_rate_limit: str | None = option(
        None, "Calls per skill by all clients together.", otherwise="no limit"
    )
    auth_rate_limit: str | None = option(
        AUTH_RATE_LIMIT, "Requests that authentication refuses, per client address."
    )
    rate_limit_storage: str = option("memory://", "Storage of rate limit counters.", is_secret=True)
    client_key: "ClientKey | None" = option(
        None,
        "Function of headers and identity that names the client behind a request, for limits.",
        otherwise="principal, or address",
    )
    task_store: Any = option(
        None,
        "Task store: sqlite:///FILE or postgresql://…",
        section="Tasks",
        name="store",
        kind=TEXT,
        otherwise="memory",
        is_secret=True,
    )
    task_ttl: float = _seconds(3600, "Time to keep finished tasks.")
    max_tasks: int = _count(10_000, "Tasks to keep; the oldest finished ones are dropped.")
    execution_timeout: float = _seconds(300, "Timeout of one run of a skill.")
    input_timeout: float = _seconds(3600, "Time that a paused task waits for input.")
    shutdown_timeout: float = _seconds(30, "Time for running tasks to finish at shutdown.", low=0)
    keep_alive: float = _seconds(15, "Interval of keep-alives on idle streams.")
    cancel_on_disconnect: bool = option(True, "Cancel a task when its last client disconnects.")
    state_history: bool = option(False, "Record past states of a task in its metadata.")
    max_runs: int = _count(2000, "Concurrent tasks in total.", section="Limits")
    max_runs_per_client: int | None = _count(
        None, "Concurrent tasks per client.", otherwise="client_share of max_runs"
    )
    max_runs_per_skill: int | None = _count(
        None, "Concurrent tasks per skill.", otherwise="no limit"
    )
    max_threads: int = _count(64, "Threads for synchronous modules.")
    max_streams: int = _count(1000, "Concurrent streams in total.")
    max_body: int = _count(10 * MIB, "Largest request body.", metavar="BYTES")
    limits: Limits = option(Limits(), "Rarely changed limits.")
    explorer: bool = option(
        False, "Serve the explorer, a page to try skills.", section="Operations"
    )
    explorer_path: str = option("/explorer", "URL path of the explorer.")
    metrics: bool = option(False, "Serve metrics at /metrics.")
    access_log: bool = option(True, "Log each request.")
    watch: bool = option(False, "Reload modules when their files change.")
    otel: bool = option(
        False, "Make spans with OpenTelemetry (needs the extra otel).", section="Traces"
    )
    push_notifications: bool | PushSettings = option(
        False, "Send notifications to webhooks.", section="Webhooks", kind=SWITCH
    )

    def __post_init__(self) -> None:
        check(self)
        _expect_limits(self.limits)
        read_tenants(self.tenants)
        if self.auth is not None:
            from apcore_a2a_core import Authenticator, missing_methods

            if missing := missing_methods(self.auth, Authenticator):
                raise TypeError(f"auth: {type(self.auth).__name__} lacks {', '.join(missing)}")
        if self.client_key is not None and not callable(self.client_key):
            raise TypeError(f"client_key takes a function, not {type(self.client_key).__name__}")
        for name in ("operators", "approvers"):
            _check_rule(name, getattr(self, name), has_auth=self.auth is not None)
        if self.operators_read == "content" and self.operators is None:
            raise OptionError("operators_read", "needs operators")
        _check_memory(self.limits.memory, self.max_body)
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise OptionError("url", f"must begin with http:// or https://, not {self.url!r}")
        if self.card_key and self.url is None:
            raise OptionError("card_key", "needs url, at which the public key is served")
        if self.openapi_server is not None:
            if self.openapi is None:
                raise OptionError("openapi_server", "needs openapi")
            if not self.openapi_server.startswith(("http://", "https://")):
                raise OptionError(
                    "openapi_server",
                    f"must begin with http:// or https://, not {self.openapi_server!r}",
                )
        if self.grpc_url is not None and not GRPC_ADDRESS.fullmatch(self.grpc_url):
            problem = f"must be host:port, without a scheme, not {self.grpc_url!r}"
            raise OptionError("grpc_url", problem)
        for host in self.allowed_hosts or ():
            if "*" in host.removeprefix("*.") and host != "*":
                problem = f"may have * only by itself, or before the first dot, not {host!r}"
                raise OptionError("allowed_hosts", problem)
            if NOT_A_HOST_NAME.search(host):
                problem = f"takes names without a scheme or port, not {host!r}"
                raise OptionError("allowed_hosts", problem)

    @property
    def shows_figures(self) -> bool:
        """Whether there are callers who may see the figures at paths below `/apcore/`.

        With auth, only operators may. Without, all callers may if the explorer or metrics are on.
        """
        if self.auth is not None:
            return self.operators is not None
        return self.explorer or self.metrics

    def project(self, key: str) -> str:
        """Return `project.<key>` of the config as text; "" if it is not set."""
        value = self.config.get(f"project.{key}") if self.config is not None else None
        return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Settings):
    """The options of `serve`: those of `create_app` and those of the listening process."""

    host: str = option("0.0.0.0", "Address to listen on.", section="Server")
    port: int = option(8000, "Port to listen on; 0 for any free port.", low=0, high=65535)
    grpc_port: int | None = option(
        None, "Port for gRPC; 0 for any free port.", low=0, high=65535, otherwise="no gRPC"
    )
    workers: int = _count(1, "Worker processes; more than one needs PostgreSQL.", high=1000)
    uds: str | None = option(
        None, "Unix socket to listen on.", metavar="FILE", otherwise="host and port"
    )
    ssl_certfile: str | None = option(
        None, "Certificate and its chain (PEM) for TLS, also for gRPC.", metavar="FILE"
    )
    ssl_keyfile: str | None = option(
        None, "Private key of the certificate (PEM).", metavar="FILE", otherwise="in the same file"
    )
    forwarded_allow_ips: Sequence[str] | None = option(
        None,
        "Addresses of proxies whose X-Forwarded-* headers are trusted; * for all.",
        otherwise="FORWARDED_ALLOW_IPS, or 127.0.0.1; all on a Unix socket",
    )
    root_path: str = option("", "Path prefix that a reverse proxy strips.")
    request_timeout: float = _seconds(10, "Read timeout, longer for large bodies.", high=HOUR)
    log_level: str = option("info", "Lowest level of log messages.", choices=LOG_LEVELS)
    log_format: str = option("text", "Format of log messages.", choices=("text", "json"))
    error_texts: bool | None = option(
        None,
        "Log the messages of modules' exceptions, which may contain data of clients.",
        otherwise="on loopback without auth, or with --dev",
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.grpc_url is not None and self.grpc_port is None:
            raise OptionError("grpc_url", "needs grpc_port")
        if self.workers > 1 and self.grpc_port is not None:
            problem = "must be 1 with grpc_port, which one process serves"
            raise OptionError("workers", f"{problem}; for more, run replicas")
        if self.workers > 1 and not hasattr(os, "fork"):
            raise OptionError("workers", "must be 1 on this operating system, which has no fork")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise OptionError("ssl_keyfile", "needs ssl_certfile")
        if self.uds is not None and self.ssl_certfile is not None:
            raise OptionError("uds", "has no TLS: leave out ssl_certfile")
