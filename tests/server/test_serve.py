"""`serve` and its options: startup, requests, shutdown."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import pytest
from apcore import APCore, Config, Context, Executor, ModuleAnnotations, Registry
from apcore_a2a_server import InMemoryTaskStore, Limits, create_app, serve

from tests.facade.processes import (
    SIGNALS,
    WITHOUT_COVERAGE,
    Process,
    agent_client,
    environment,
    extensions,
    process,
    serve_command,
)
from tests.serving import PATIENCE, running

from .checking_client import Agent, Answer, Json, state_of
from .conftest import eventually
from .inloop import metadata_of
from .modules import Echo, Inputs, Module, Slow

CARD = "/.well-known/agent-card.json"
SERVER_SHUTDOWN = "Server shutdown"


class Hidden(Echo):
    """A module that agents must not show."""

    annotations: ClassVar[Any] = ModuleAnnotations(discoverable=False)


def registry_of(**modules: object) -> Registry:
    registry = Registry()
    for name, module in modules.items():
        registry.register(name, module)
    return registry


@contextmanager
def agent_with(source: Any = None, dialect: str = "1.0", **options: Any) -> Iterator[Agent]:
    """Serve an agent with these options in a thread."""
    source = source or registry_of(echo=Echo(), slow=Slow())
    with running(source, **options) as url, httpx.Client(base_url=url, trust_env=False) as client:
        yield Agent(client, dialect)


def card_of(agent: Agent) -> Json:
    card: Json = agent.client.get(CARD).json()
    return card


# Startup and shutdown in a process of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extensions(tmp_path_factory.mktemp("serve_command"))


def nap_params(agent: Agent, seconds: float) -> Json:
    """Return the params of a message whose task takes *seconds*."""
    return agent.params("nap", agent.part(data={"seconds": seconds}))


class BackgroundRequest:
    """A request that waits for its response in a thread."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._answer = Future[Answer]()
        threading.Thread(target=self._wait, args=(ask,)).start()

    def _wait(self, ask: Callable[[], Answer]) -> None:
        try:
            self._answer.set_result(ask())
        except Exception as error:  # raised again for the reader of the answer
            self._answer.set_exception(error)

    @property
    def answer(self) -> Answer:
        return self._answer.result(PATIENCE)


@contextmanager
def background_request(
    process: Process, operation: str, seconds: float
) -> Iterator[BackgroundRequest]:
    """Send a message whose task takes *seconds*; yield once the server has one more task."""
    with agent_client(process) as agent, agent_client(process) as other:

        def count_tasks() -> int:
            return len(other.ask("list", {}).result["tasks"])

        earlier_tasks = count_tasks()
        request = BackgroundRequest(lambda: agent.ask(operation, nap_params(agent, seconds)))
        eventually(lambda: count_tasks() > earlier_tasks)
        yield request


def last_state(answer: Answer) -> tuple[str, str]:
    """Return the state of the last event and the text of its status message."""
    (status,) = answer.events[-1].values()
    message = status["status"].get("message", {"parts": [{"text": ""}]})
    return state_of(status), message["parts"][0]["text"]


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_shuts_the_server_down_cleanly(number: int, folder: Path, tmp_path: Path) -> None:
    with process(serve_command(folder), tmp_path) as agent, agent_client(agent) as client:
        assert client.send().state == "completed"
        assert agent.end(number) == 0
    assert "Traceback" not in agent.log


CALL_THAT_HANGS = """
import asyncio, threading
from apcore_a2a_server.modules.threads import SideThreads

async def main():
    started = threading.Event()
    hang = lambda: (started.set(), threading.Event().wait())
    call = asyncio.create_task(SideThreads(1).call(hang))
    await asyncio.to_thread(started.wait)

asyncio.run(main())
"""


@pytest.mark.process
def test_a_process_does_not_wait_for_a_check_that_hangs(tmp_path: Path) -> None:
    seconds_of(CALL_THAT_HANGS, tmp_path)  # fails after PATIENCE seconds


def seconds_of(code: str, home: Path) -> float:
    """Return how many seconds a process takes to run *code*."""
    started_at = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment(home, WITHOUT_COVERAGE),
        timeout=PATIENCE,
    )
    return time.perf_counter() - started_at


@pytest.mark.process
@pytest.mark.clock
def test_startup_and_shutdown_are_fast_compared_with_the_imports(
    folder: Path, tmp_path: Path
) -> None:
    """Compare with the imports, because absolute times depend on the machine."""
    durations, imports = [], []
    for number in SIGNALS * 2:
        imports.append(seconds_of("from apcore_a2a_server import serve", tmp_path))
        with process(serve_command(folder), tmp_path, WITHOUT_COVERAGE) as agent:
            agent.wait_for_card(agent.url)
            started_at = time.perf_counter()
            agent.end(number)
            durations.append((started_at - agent.started_at, time.perf_counter() - started_at))

    assert min(start for start, _ in durations) < 2 * min(imports)
    assert min(end for _, end in durations) < min(imports)


@pytest.mark.process
@pytest.mark.clock
def test_without_uvloop_responses_avoid_nagles_delay(folder: Path, tmp_path: Path) -> None:
    command = serve_command(folder)
    command[2] = f"import sys\nsys.modules['uvloop'] = None\n{command[2]}"
    durations = []
    with process(command, tmp_path) as agent, agent_client(agent) as client:
        for _ in range(15):
            started_at = time.perf_counter()
            client.ask("get", {"id": "none"})
            durations.append(time.perf_counter() - started_at)
        agent.end(signal.SIGTERM)

    assert sorted(durations)[5] < 0.03


@pytest.mark.process
def test_a_running_task_may_finish_during_shutdown(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=20), tmp_path) as agent,
        background_request(agent, "stream", 1) as stream,
        background_request(agent, "send", 1) as send,
    ):
        assert agent.end(signal.SIGTERM) == 0
        assert send.answer.state == "completed"
        assert last_state(stream.answer) == ("completed", "")
    assert "Shutting down; waiting at most 20 s for running tasks: 2" in agent.log


@pytest.mark.process
@pytest.mark.smoke
def test_a_task_that_exceeds_the_shutdown_timeout_fails(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=0.2), tmp_path) as agent,
        background_request(agent, "stream", 60) as stream,
        background_request(agent, "send", 60) as send,
    ):
        assert agent.end(signal.SIGINT) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)
        task = send.answer.task
        assert state_of(task) == "failed"
        assert task["status"]["message"]["parts"][0]["text"] == SERVER_SHUTDOWN
    assert "Traceback" not in agent.log


def refuses(url: str) -> bool:
    try:
        httpx.get(url, trust_env=False)
    except httpx.ConnectError:
        return True
    except httpx.ReadError:  # only the kernel had accepted the connection
        return False
    return False


@pytest.mark.process
@pytest.mark.smoke
def test_a_draining_server_refuses_new_connections(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=20), tmp_path) as agent,
        agent_client(agent) as kept_alive,
        background_request(agent, "stream", 2) as stream,
    ):
        assert kept_alive.client.get("/health").status_code == 200
        agent.signal(signal.SIGTERM)
        eventually(lambda: refuses(agent.url))

        health = kept_alive.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "draining")
        assert last_state(stream.answer) == ("completed", "")
        assert agent.end() == 0


@pytest.mark.process
def test_a_draining_server_starts_no_task(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=20), tmp_path) as agent,
        agent_client(agent) as kept_alive,
        background_request(agent, "stream", 1),
    ):
        assert kept_alive.client.get("/health").status_code == 200
        agent.signal(signal.SIGTERM)
        agent.wait_for("(Ctrl.C again)")
        refused = kept_alive.client.post("/message:send", json=kept_alive.params())

        assert refused.status_code == 503
        assert {"retry-after", "connection"} <= {*refused.headers}


@pytest.mark.process
def test_connections_accepted_before_the_shutdown_are_served(folder: Path, tmp_path: Path) -> None:
    with process(serve_command(folder), tmp_path) as agent, ExitStack() as stack:
        agent.wait_for_card(agent.url)
        agent.signal(signal.SIGSTOP)  # so that only the kernel accepts connections
        address = ("127.0.0.1", urlsplit(agent.url).port)
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
        for client in clients:
            client.sendall(f"GET {CARD} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        agent.signal(signal.SIGTERM)
        agent.signal(signal.SIGCONT)

        assert [client.recv(12) for client in clients] == [b"HTTP/1.1 200"] * 20
        assert agent.end() == 0


@pytest.mark.process
def test_a_second_signal_ends_the_server_at_once(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=600), tmp_path) as agent,
        background_request(agent, "stream", 600) as stream,
    ):
        agent.signal(signal.SIGTERM)
        agent.wait_for("(Ctrl.C again)")
        time.sleep(0.2)  # right after the first, a second signal counts as its repetition

        assert agent.end(signal.SIGINT) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)
    assert "Traceback" not in agent.log


def command_with_stdin(stdin: str, folder: Path, **options: Any) -> list[str]:
    """Return the command that serves a folder, with a file or terminal as standard input.

    The process heeds SIGHUP, even if the tests ignore it because `nohup` started them.
    """
    python, flag, source, *arguments = serve_command(folder, **options)
    heed_sighup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    return ["sh", "-c", 'exec "$@" <"$0"', stdin, python, flag, heed_sighup + source, *arguments]


@pytest.mark.process
def test_a_hangup_does_not_end_a_service(folder: Path, tmp_path: Path) -> None:
    with (
        process(command_with_stdin(os.devnull, folder), tmp_path) as agent,
        agent_client(agent) as client,
    ):
        client.send()
        agent.signal(signal.SIGHUP)
        assert client.send().state == "completed"
        assert agent.end(signal.SIGTERM) == 0


@pytest.mark.process
def test_a_hangup_of_its_terminal_shuts_the_server_down_cleanly(
    folder: Path, tmp_path: Path
) -> None:
    terminal, stdin = os.openpty()
    try:
        with process(command_with_stdin(os.ttyname(stdin), folder), tmp_path) as agent:
            with agent_client(agent) as client:
                client.send()
            assert agent.end(signal.SIGHUP) == 0
    finally:
        os.close(terminal)
        os.close(stdin)
    assert "Traceback" not in agent.log


@pytest.mark.process
def test_a_signal_right_after_the_first_is_ignored(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, shutdown_timeout=20), tmp_path) as agent,
        background_request(agent, "stream", 1) as stream,
    ):
        agent.signal(signal.SIGTERM)
        agent.signal(signal.SIGINT)

        assert agent.end() == 0
        assert last_state(stream.answer) == ("completed", "")


@pytest.mark.process
def test_a_program_can_configure_its_own_logging(folder: Path, tmp_path: Path) -> None:
    setup = "import logging; logging.basicConfig(format='mine: %(message)s', level='INFO')"
    command = serve_command(folder)
    command[2] = setup + command[2]

    with process(command, tmp_path) as agent:
        agent.wait_for_card(agent.url)
        agent.end(signal.SIGTERM)

    assert all(line.startswith("mine: ") for line in agent.log.splitlines())


# Addresses and ports


def test_a_port_in_use_is_an_oserror() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        with pytest.raises(OSError, match=f"Cannot listen on {address}: Address already in use"):
            serve(registry_of(echo=Echo()), host="127.0.0.1", port=listener.getsockname()[1])


def test_an_invalid_port_and_an_invalid_log_level_are_refused() -> None:
    with pytest.raises(ValueError, match="port must be a whole number from 0 to 65535"):
        serve(registry_of(echo=Echo()), port=65536)
    with pytest.raises(ValueError, match="log_level must be debug, info, warning or error"):
        serve(registry_of(echo=Echo()), log_level="loud")


@pytest.mark.process
def test_a_wildcard_address_listens_on_ipv4_and_ipv6_and_warns(
    folder: Path, tmp_path: Path
) -> None:
    with process(serve_command(folder, host="::"), tmp_path) as agent:
        for url in (agent.url, agent.url.replace("127.0.0.1", "[::1]")):
            assert (
                agent.wait_for_card(url)["url"] == agent.url.replace("127.0.0.1", "localhost") + "/"
            )
        agent.end(signal.SIGTERM)

    assert "WARNING Anyone who can reach this address" in agent.log


@pytest.mark.process
def test_a_root_path_is_in_the_card_and_does_not_change_the_routes(
    folder: Path, tmp_path: Path
) -> None:
    with (
        process(serve_command(folder, root_path="agents/one/"), tmp_path) as agent,
        agent_client(agent) as client,
    ):
        port = agent.url.rpartition(":")[2]

        assert card_of(client)["url"] == f"http://127.0.0.1:{port}/agents/one/"
        assert client.send().state == "completed"
        assert Agent(client.client, "REST").send().state == "completed"
        assert client.client.get("/health").status_code == 200
        agent.end(signal.SIGTERM)


# Sources


def test_registries_executors_apcore_objects_and_folders_can_be_served(folder: Path) -> None:
    registry = registry_of(echo=Echo())
    for source in (registry, Executor(registry), APCore(registry=registry), folder, str(folder)):
        with agent_with(create_app(source, url="http://127.0.0.1")) as agent:
            assert agent.send().state == "completed"


@pytest.mark.parametrize("source", [Registry, lambda: Executor(Registry())])
def test_a_source_without_modules_is_refused(source: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="no modules"):
        create_app(source())


class Lister:
    def list(self) -> list[str]:
        return []


class ExecutorWithoutRegistry:
    """Methods of an executor, without a registry."""

    async def call_async(self, *_: Any, **__: Any) -> None: ...
    async def stream(self, *_: Any, **__: Any) -> None: ...
    def validate(self, *_: Any, **__: Any) -> None: ...


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        (object(), "object lacks .*get_definition"),
        (Lister(), "Lister lacks .*get_definition"),
        (None, "NoneType lacks"),
        (8000, "int lacks"),
        (ExecutorWithoutRegistry(), "registry"),
    ],
)
def test_an_unsupported_source_is_refused_with_its_missing_methods(source: Any, lacks: str) -> None:
    with pytest.raises(TypeError, match=lacks):
        create_app(source)


def test_an_agent_may_start_without_modules_if_configured(tmp_path: Path) -> None:
    modules = Registry()
    with agent_with(modules, allow_empty=True) as agent:
        assert card_of(agent)["skills"] == []
        modules.register("echo", Echo())
        assert agent.send().state == "completed"

    create_app(tmp_path, allow_empty=True)


def test_a_registry_without_visible_modules_is_refused() -> None:
    modules = Registry()
    with pytest.raises(ValueError, match=r"^There are no modules to serve: the registry is empty"):
        create_app(modules)

    modules.register("hidden", Hidden())
    with pytest.raises(ValueError, match=r", or hides them all$"):
        create_app(modules)


# The card


def test_the_agent_is_named_by_its_options() -> None:
    options = {"name": "Echoes", "description": "Says it again", "version": "1.2.3"}
    with agent_with(**options) as agent:
        assert options.items() <= card_of(agent).items()


def test_the_agent_is_named_by_its_config() -> None:
    project = {"name": "Echoes", "description": "Says it again", "version": 1.5}
    config = Config(data={"project": project})
    with agent_with(config=config, description="Something else") as agent:
        card = card_of(agent)

    assert (card["name"], card["version"]) == ("Echoes", "1.5")
    assert card["description"] == "Something else"


def test_the_agent_has_a_default_name() -> None:
    with agent_with() as agent:
        card = card_of(agent)

    assert (card["name"], card["version"]) == ("apcore-agent", "0.0.0")
    assert "2" in card["description"]


@pytest.mark.parametrize("url", ["https://a.example/one", "https://a.example/one/"])
def test_the_card_has_the_public_url_with_one_trailing_slash(url: str) -> None:
    with agent_with(url=url) as agent:
        card = card_of(agent)

    assert card["url"] == "https://a.example/one/"
    assert card["url"] in {interface["url"] for interface in card["supportedInterfaces"]}


# Options


def test_the_default_skill_gets_messages_without_a_skill_id() -> None:
    params = {"message": Agent(httpx.Client(), "1.0").params()["message"]}
    with agent_with(default_skill="echo") as agent:
        assert agent.ask("send", params).state == "completed"
        assert agent.send("nope").code == -32601
    with agent_with() as agent:
        assert agent.ask("send", params).error


def test_an_unknown_default_skill_is_refused() -> None:
    with pytest.raises(ValueError, match="nope"):
        create_app(registry_of(echo=Echo()), default_skill="nope")


def test_a_run_ends_at_the_execution_timeout() -> None:
    with agent_with(execution_timeout=0.1) as agent:
        assert agent.send("slow").state == "failed"


def test_a_silent_stream_sends_keep_alive_comments() -> None:
    with agent_with(keep_alive=0.05, execution_timeout=0.5) as agent:
        text = agent.stream("slow").response.text
    assert text.count(": keep-alive") > 3
    with agent_with(execution_timeout=0.5) as agent:
        assert ": keep-alive" not in agent.stream("slow").response.text


def test_a_task_expires_after_its_ttl() -> None:
    with agent_with(task_ttl=1) as agent:
        task = agent.send().task

        assert agent.ask("get", {"id": task["id"]}).state == "completed"
        eventually(lambda: agent.ask("get", {"id": task["id"]}).code == -32001)


def test_above_max_tasks_the_oldest_task_is_evicted() -> None:
    with agent_with(max_tasks=2) as agent:
        ids = [agent.send().task["id"] for _ in range(3)]
        codes = [agent.ask("get", {"id": task_id}).code for task_id in ids]

    assert codes == [-32001, None, None]


def test_a_body_may_be_as_large_as_max_body() -> None:
    with agent_with(max_body=1000) as agent:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}).encode()

        assert agent.client.post("/", content=body + b" " * 1000).status_code == 413
        assert agent.client.post("/", content=body.ljust(1000)).status_code == 200


def test_tasks_record_their_state_history_if_configured() -> None:
    with agent_with(state_history=True) as agent:
        history = agent.send().task["metadata"]["apcore"]["stateHistory"]
        assert card_of(agent)["capabilities"]["stateTransitionHistory"] is True
    with agent_with() as agent:
        assert "apcore" not in metadata_of(agent.send().task)
        assert not card_of(agent)["capabilities"].get("stateTransitionHistory")

    assert state_of({"status": history[-1]}) in ("working", "completed")


ORIGIN = {"Origin": "https://page.example"}


def test_only_web_pages_of_allowed_origins_may_call() -> None:
    for origins, allowed in (
        (None, None),
        (["https://page.example"], ORIGIN["Origin"]),
        (["*"], "*"),
    ):
        with agent_with(cors_origins=origins) as agent:
            preflight = {**ORIGIN, "Access-Control-Request-Method": "POST"}
            options = agent.client.options("/", headers=preflight)
            answer = agent.client.post("/", json={}, headers=ORIGIN)
            other = agent.client.post("/", json={}, headers={"Origin": "https://other.example"})

            assert answer.headers.get("access-control-allow-origin") == allowed
            assert (answer.status_code == 403) is (allowed is None)
            assert (other.status_code == 403) is (allowed != "*")
            assert (options.status_code == 200) is (allowed is not None)


def test_only_requests_for_allowed_hosts_are_answered() -> None:
    with agent_with(allowed_hosts=["agent.example"]) as agent:
        assert agent.client.get("/health").status_code == 421
        assert agent.client.get("/health", headers={"Host": "agent.example"}).status_code == 200
    with agent_with() as agent:
        assert agent.client.get("/health", headers={"Host": "any"}).status_code == 200


def test_the_schema_cache_does_not_change_responses() -> None:
    def responses(cached: bool) -> list[Any]:
        with agent_with(limits=Limits(schema_cache=cached)) as agent:
            answers = [agent.send(), agent.send("echo", agent.part(data={"text": 5})), agent.send()]
            results = [(answer.code, answer.code is None and answer.data) for answer in answers]
            return [*results, answers[1].error, card_of(agent)["skills"]]

    assert responses(cached=True) == responses(cached=False)


class MeetingModule(Module):
    """A module that waits for a concurrent call of itself in another thread."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def execute(self, inputs: Inputs, context: "Context[Any]") -> Inputs:
        try:
            self._barrier.wait(0.5)
        except threading.BrokenBarrierError:
            return {"met": False}
        return {"met": True}


@pytest.mark.parametrize("threads", [1, 2])
def test_max_threads_limits_concurrent_synchronous_modules(threads: int) -> None:
    with agent_with(registry_of(meets=MeetingModule()), max_threads=threads) as agent:
        requests = [BackgroundRequest(lambda: agent.send("meets")) for _ in range(2)]

        assert [request.answer.data for request in requests] == [{"met": threads == 2}] * 2


def test_tasks_are_saved_in_the_given_store() -> None:
    store = InMemoryTaskStore()
    with agent_with(task_store=store) as agent:
        agent.send()

    assert len(store) == 1


def test_an_object_that_is_not_a_store_is_refused() -> None:
    with pytest.raises(TypeError, match=r"task_store lacks .*save.*get"):
        create_app(registry_of(echo=Echo()), task_store=object())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cors_origins", "https://page.example"),
        ("allowed_hosts", "agent.example"),
        ("url", "agent.example"),
        ("execution_timeout", 0),
        ("execution_timeout", float("nan")),
        ("keep_alive", -1),
        ("keep_alive", float("inf")),
        ("task_ttl", float("nan")),
        ("shutdown_timeout", -1),
        ("shutdown_timeout", float("nan")),
        ("max_tasks", 0),
        ("max_body", 0),
        ("max_threads", 0),
    ],
)
def test_an_invalid_option_is_refused_with_its_name(option: str, value: Any) -> None:
    options: Any = {option: value}
    with pytest.raises(ValueError, match=option):
        create_app(registry_of(echo=Echo()), **options)


def test_an_unknown_option_is_refused_with_its_name() -> None:
    options: Any = {"keepalive": 1}
    with pytest.raises(TypeError, match="keepalive"):
        create_app(registry_of(echo=Echo()), **options)
