"""`serve` with `grpc_port`: addresses, startup, shutdown."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from apcore_a2a_server import serve
from apcore_a2a_server.app.options import ServeSettings, Settings
from apcore_a2a_server.fields import OptionError

from tests.facade.processes import (
    COMMAND,
    SIGNALS,
    Process,
    agent_client,
    extensions,
    process,
    serve_command,
)
from tests.serving import PATIENCE

from .conftest import eventually
from .grpc_caller import request_for
from .inloop import ActionModule, echo, registry_of

Code = grpc.StatusCode


@contextmanager
def stub_of(agent: Process) -> Iterator[Any]:
    """Connect to the gRPC port that *agent* logs."""
    port = agent.wait_for(r"gRPC: \S+:(\d+)")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)
        make_stub: Any = A2AServiceStub
        yield make_stub(channel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extensions(tmp_path_factory.mktemp("served"), "echo.py", "nap.py")


@pytest.mark.process
@pytest.mark.smoke
def test_the_command_serves_grpc_at_the_port_on_its_card(folder: Path, tmp_path: Path) -> None:
    options = ["--host", "127.0.0.1", "--port", "0", "--grpc-port", "0"]
    with (
        process([*COMMAND, "serve", "--extensions-dir", str(folder), *options], tmp_path) as agent,
        stub_of(agent) as stub,
        agent_client(agent) as over_http,
    ):
        task = stub.SendMessage(request_for("echo", text="hello")).task
        card = over_http.client.get("/.well-known/agent-card.json").json()
        interface = card["supportedInterfaces"][-1]
        logged = agent.wait_for(r"gRPC: (\S+)")
        assert over_http.ask("get", {"id": task.id}).task["id"] == task.id
        assert agent.end(signal.SIGTERM) == 0
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert interface["protocolBinding"] == "GRPC"
    assert interface["url"] == logged
    assert "Traceback" not in agent.log


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS)
def test_running_calls_end_before_the_server_does(
    number: int, folder: Path, tmp_path: Path
) -> None:
    with (
        process(serve_command(folder, grpc_port=0), tmp_path) as agent,
        stub_of(agent) as stub,
        ThreadPoolExecutor() as threads,
    ):
        nap = request_for("nap", seconds=1.5)
        blocking = threads.submit(stub.SendMessage, nap)
        streaming = threads.submit(lambda: [*stub.SendStreamingMessage(nap)])
        eventually(lambda: len(stub.ListTasks(pb.ListTasksRequest()).tasks) == 2)
        agent.signal(number)
        agent.wait_for(r"(Shutting down)")
        with pytest.raises(grpc.RpcError) as refused:
            stub.SendMessage(request_for("echo", text="hello"))
        exit_code = agent.end()
    assert refused.value.code() == Code.UNAVAILABLE
    assert blocking.result().task.status.state == pb.TASK_STATE_COMPLETED
    assert streaming.result()[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert exit_code == 0
    assert "Traceback" not in agent.log


@pytest.mark.process
def test_calls_that_outlast_the_shutdown_get_the_failed_task(folder: Path, tmp_path: Path) -> None:
    with (
        process(serve_command(folder, grpc_port=0, shutdown_timeout=0.2), tmp_path) as agent,
        stub_of(agent) as stub,
        ThreadPoolExecutor() as threads,
    ):
        blocking = threads.submit(stub.SendMessage, request_for("nap", seconds=60))
        eventually(lambda: len(stub.ListTasks(pb.ListTasksRequest()).tasks) == 1)
        assert agent.end(signal.SIGTERM) == 0
    assert blocking.result().task.status.state == pb.TASK_STATE_FAILED


@pytest.mark.process
def test_an_agent_without_grpc_and_rate_limits_imports_none_of_their_libraries() -> None:
    code = """
import sys
from apcore import Registry
from apcore_a2a_server import create_app
import apcore_a2a_server.app.serve
class Module:
    description = "A module"
    input_schema = output_schema = None
    def execute(self, inputs, context): return inputs
registry = Registry()
registry.register("work", Module())
create_app(registry)
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "limits")])
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def work_registry() -> Any:
    return registry_of({"work": ActionModule(echo)})


def test_without_grpcio_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'apcore-a2a[grpc]'")):
        serve(work_registry(), host="127.0.0.1", port=0, grpc_port=0)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on 127.0.0.1:{port}: Address already"):
            serve(work_registry(), host="127.0.0.1", port=0, grpc_port=port)


@pytest.mark.parametrize(
    "address", ["", "agent", "http://agent:1", "agent:1/a2a", "::1:5", "a b:1"]
)
def test_grpc_url_must_be_a_host_and_a_port(address: str) -> None:
    with pytest.raises(OptionError, match="grpc_url must be host:port"):
        Settings(grpc_url=address)


@pytest.mark.parametrize("address", ["agent.example.com:443", "[::1]:50051", "10.0.0.1:1"])
def test_grpc_url_may_have_any_host(address: str) -> None:
    assert ServeSettings(grpc_url=address, grpc_port=0).grpc_url == address


def test_grpc_url_without_grpc_port_is_refused() -> None:
    with pytest.raises(OptionError, match="grpc_url needs grpc_port"):
        ServeSettings(grpc_url="agent.example.com:443")
