"""Companions that fail: the agent closes everything else."""

import asyncio
import socket
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from apcore_a2a_server import InMemoryTaskStore, serve
from apcore_a2a_server.app.companions import Companions
from apcore_a2a_server.app.figures import ALIVE_AT, Figures
from apcore_a2a_server.app.options import ServeSettings
from apcore_a2a_server.app.serve import WorkerServer
from apcore_a2a_server.app.supervisor import Worker
from apcore_a2a_server.fields import OptionError
from starlette.responses import PlainTextResponse

from tests.serving import listener

from .inloop import ActionModule, app_of, echo, listening, registry_of, wait_until
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio


class FailingCompanion:
    """A companion, one method of which raises an error."""

    name = "failing"

    def __init__(self, failing_method: str) -> None:
        self.failing_method = failing_method
        self.calls: list[str] = []

    def _call(self, method: str) -> None:
        self.calls.append(method)
        if method == self.failing_method:
            raise ValueError(method)

    async def start(self, registry: Any) -> None:
        self._call("start")

    async def aclose(self) -> None:
        self._call("aclose")

    def is_ready(self) -> bool:
        self._call("is_ready")
        return True

    def figures(self) -> dict[str, float]:
        return {}


class ClosableStore(InMemoryTaskStore):
    """A store that knows whether it is open."""

    is_open = False

    async def start(self, **options: Any) -> None:
        await super().start(**options)
        self.is_open = True

    async def close(self) -> None:
        await super().close()
        self.is_open = False


class Mailbox(FailingCompanion):
    """A companion with an application."""

    def routes(self) -> dict[str, Any]:
        return {"/remote/mail": PlainTextResponse("received")}


async def test_a_path_of_a_companion_is_no_tenant() -> None:
    registry = registry_of({"work": ActionModule(echo)})
    app = app_of(registry, companions=[Mailbox("")], tenants=["work=work"])
    async with listening(app) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.get("/remote/mail")
        assert (response.status_code, response.text) == (200, "received")
        assert (await client.get("/work/.well-known/agent-card.json")).status_code == 200
    registry.register("remote", ActionModule(echo))
    with pytest.raises(OptionError, match="'remote', which is a path of the agent"):
        app_of(registry, companions=[Mailbox("")], tenants=["remote=remote"])


@pytest.mark.parametrize("method", ["start", "aclose"])
async def test_the_store_is_closed_although_a_companion_fails(method: str) -> None:
    companion, store = FailingCompanion(method), ClosableStore()
    registry = registry_of({"work": ActionModule(echo)})
    app = app_of(registry, companions=[companion], task_store=store)

    with pytest.raises(ValueError, match=method):
        async with app.router.lifespan_context(app):
            assert store.is_open
    assert companion.calls == ["start", "aclose"]
    assert not store.is_open


def test_serve_raises_if_a_companion_cannot_start() -> None:
    registry = registry_of({"work": ActionModule(echo)})
    with pytest.raises(RuntimeError, match="could not start; the log has the reason"):
        serve(registry, port=0, companions=[FailingCompanion("start")])


class SlowCompanion(FailingCompanion):
    """A companion that takes a while to start and to close."""

    def __init__(self) -> None:
        super().__init__("")
        self.ended: list[str] = []

    async def start(self, registry: Any) -> None:
        await asyncio.sleep(0.01)
        self.ended.append("start")

    async def aclose(self) -> None:
        await asyncio.sleep(0.01)
        self.ended.append("aclose")


@pytest.mark.parametrize("method", ["start", "aclose"])
async def test_the_failure_of_a_companion_waits_for_the_other_companions(method: str) -> None:
    first, last = SlowCompanion(), SlowCompanion()
    companions = Companions([first, FailingCompanion(method), last])

    call = companions.start(registry_of({})) if method == "start" else companions.aclose()
    with pytest.raises(ValueError, match=method):
        await call
    assert first.ended == last.ended == [method]


async def test_a_worker_stays_alive_although_a_companion_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apcore_a2a_server.app.serve.gc", MagicMock())
    monkeypatch.setattr("apcore_a2a_server.app.serve.PUBLISH_INTERVAL", 0.01)
    companion, figures = FailingCompanion("is_ready"), Figures(2)
    settings = ServeSettings(companions=[companion], metrics=True, shutdown_timeout=0)
    registry = registry_of({"work": ActionModule(echo)})
    server = WorkerServer.of(registry, settings, lambda report: None, figures)
    parent, link = socket.socketpair()
    with parent, link, listener() as sock:
        server.worker = Worker(0, link)
        serving = asyncio.create_task(server.serve([sock]))
        await wait_until(lambda: "is_ready" in companion.calls)
        failed_at = figures.by_worker(ALIVE_AT)[0]
        await wait_until(lambda: figures.by_worker(ALIVE_AT)[0] > failed_at)
        server.should_exit = True
        await serving


class UnreadyCompanion(FailingCompanion):
    """A companion that does not work."""

    def is_ready(self) -> bool:
        return False


def test_of_companions_with_one_name_all_must_be_ready() -> None:
    unready, ready = UnreadyCompanion(""), FailingCompanion("")
    for companions in ([unready, ready], [ready, unready]):
        assert Companions(companions).health() == {"companions": {"failing": "not ready"}}
    assert Companions([ready, ready]).health() == {"companions": {"failing": "ready"}}


class Impostor(FailingCompanion):
    """A companion, a figure of which has a name of the server's."""

    def __init__(self, figure: str) -> None:
        super().__init__("")
        self.figure = figure

    def figures(self) -> dict[str, float]:
        return {self.figure: 1, "letters": 2}


@pytest.mark.parametrize("figure", ["active_tasks", "alive_at", "requests 200"])
def test_a_figure_of_a_companion_needs_a_name_of_its_own(figure: str) -> None:
    registry = registry_of({"work": ActionModule(echo)})
    with pytest.raises(OptionError, match=f"^companions has the figure '{figure}'"):
        app_of(registry, companions=[Impostor(figure)], metrics=True)
