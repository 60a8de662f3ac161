"""`serve` with TLS, on a Unix socket, and behind proxies."""

import asyncio
import json
import os
import socket
import ssl
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme
import uvicorn
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from apcore_a2a_server import serve
from apcore_a2a_server.app.listening import listen
from apcore_a2a_server.app.options import ServeSettings
from apcore_a2a_server.app.serve import stop_listening
from apcore_a2a_server.fields import OptionError
from starlette.applications import Starlette

from tests.facade.processes import COMMAND, SIGNALS, extensions, process

from .grpc_caller import request_for

CARD = "/.well-known/agent-card.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with modules, a certificate, its key and its issuer, and another key."""
    home = tmp_path_factory.mktemp("served")
    extensions(home, "echo.py")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(home / "authority.pem")
    issued.cert_chain_pems[0].write_to_path(home / "cert.pem")
    issued.private_key_pem.write_to_path(home / "key.pem")
    authority.issue_cert("localhost").private_key_pem.write_to_path(home / "other.pem")
    return home


@pytest.fixture
def tls(folder: Path) -> list[str]:
    return [f"--ssl-certfile={folder / 'cert.pem'}", f"--ssl-keyfile={folder / 'key.pem'}"]


@pytest.mark.process
def test_tls_covers_http_grpc_and_the_card(folder: Path, tls: list[str], tmp_path: Path) -> None:
    options = ["--host=127.0.0.1", "--port=0", "--grpc-port=0", *tls]
    trusted = (folder / "authority.pem").read_bytes()
    context = ssl.create_default_context(cadata=trusted.decode())
    with process([*COMMAND, "serve", str(folder / "extensions"), *options], tmp_path) as agent:
        url = agent.wait_for(r"skill at (https://127.0.0.1:\d+)")
        address = agent.wait_for(r"gRPC: (\S+)")
        with httpx.Client(base_url=url, verify=context, trust_env=False) as client:
            card = client.get(CARD).json()
        credentials = grpc.ssl_channel_credentials(trusted)
        with closing(grpc.secure_channel(address, credentials)) as channel:
            make_stub: Any = A2AServiceStub
            task = make_stub(channel).SendMessage(request_for("echo", text="hi")).task
        assert agent.end(SIGNALS[0]) == 0

    assert card["url"] == f"{url}/"
    assert task.id
    assert "Traceback" not in agent.log


@pytest.mark.anyio
@pytest.mark.parametrize("client_left", [True, False])
async def test_a_client_without_a_tls_handshake_does_not_hold_up_the_shutdown(
    folder: Path, *, client_left: bool
) -> None:
    settings = ServeSettings(host="127.0.0.1", port=0)
    config = uvicorn.Config(
        Starlette(), ssl_certfile=folder / "cert.pem", ssl_keyfile=folder / "key.pem"
    )
    with listen(settings) as listener, closing(socket.socket()) as client:
        listener.setblocking(False)
        client.connect(listener.getsockname())
        if client_left:
            client.close()
        config.load()
        server = uvicorn.Server(config)
        server.lifespan, server.servers = config.lifespan_class(config), []

        async with asyncio.timeout(10):  # asyncio allows 60 s for a handshake
            await stop_listening(server, [listener])


@pytest.mark.process
def test_serve_on_a_unix_socket_trusts_the_proxy_and_removes_the_socket(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "agent.sock"
    with closing(socket.socket(socket.AF_UNIX)) as abandoned:
        abandoned.bind(str(path))  # left by a process that was killed
    options = ["--uds=agent.sock", "--url=https://agent.example", "--log-format=json"]
    command = [*COMMAND, "serve", str(folder / "extensions"), *options]
    with process(command, tmp_path) as agent:
        agent.wait_for(r"(Listening on the Unix socket .*agent\.sock)")
        agent.wait_for(r"(Press Ctrl\+C)")
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://agent.example") as client:
            card = client.get(CARD).json()
            client.post("/", headers={"x-forwarded-for": "192.0.2.7"})
        line = json.loads(agent.wait_for(r"(.*POST.*)"))
        assert agent.end(SIGNALS[0]) == 0

    assert card["url"] == "https://agent.example/"
    assert line["client"] == "192.0.2.7"
    assert not path.exists()


def test_a_socket_that_refuses_the_probe_but_is_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log.sock"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(str(path))
        with pytest.raises(OSError, match=r"Cannot listen on .*log\.sock: Address"):
            serve("./extensions", uds=str(path))
        assert path.is_socket()


def test_a_socket_in_use_and_other_files_are_not_replaced(tmp_path: Path) -> None:
    path, file = tmp_path / "agent.sock", tmp_path / "file"
    file.write_text("kept")
    with listen(ServeSettings(uds=str(path))):
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        with pytest.raises(OSError, match=r"Cannot listen on .*agent\.sock: Address"):
            serve("./extensions", uds=str(path))
        assert path.exists()
    assert not path.exists()
    with pytest.raises(OSError, match=r"Cannot listen on .*file"):
        serve("./extensions", uds=str(file))
    assert file.read_text() == "kept"


def test_the_socket_of_a_process_that_listens_in_the_meantime_is_not_removed(
    tmp_path: Path,
) -> None:
    settings = ServeSettings(uds=str(tmp_path / "agent.sock"))
    with listen(settings) as old_listener:
        old_listener.close()  # the process still finishes its tasks
        new_process = listen(settings)
        new_process.__enter__()
    assert (tmp_path / "agent.sock").exists()
    new_process.__exit__(None, None, None)
    assert not (tmp_path / "agent.sock").exists()


@pytest.fixture
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("_in_folder")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl_keyfile": "key.pem"}, "^ssl_keyfile needs ssl_certfile"),
        ({"ssl_certfile": "nope.pem"}, "^ssl_certfile must be a file: there is no file nope.pem"),
        ({"ssl_certfile": "cert.pem"}, "^ssl_certfile and its key can't be used: "),
        ({"ssl_certfile": "cert.pem", "ssl_keyfile": "other.pem"}, "KEY_VALUES_MISMATCH"),
        ({"ssl_certfile": "cert.pem", "uds": "agent.sock"}, "^uds has no TLS"),
    ],
)
def test_certificates_that_cannot_be_used_are_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        serve("./extensions", host="127.0.0.1", port=0, **options)
