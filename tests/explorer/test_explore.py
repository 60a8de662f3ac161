"""`apcore-a2a explore`: the page for any agent, through a proxy on this machine."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
import uvicorn
from apcore import Registry
from apcore_a2a_explorer.proxy import AgentProxy
from apcore_a2a_server import create_app
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.facade.processes import COMMAND, Process, environment, free_port, process
from tests.serving import PATIENCE, Server, listener, running

from .agent import registry
from .browsing import Visit, press_run
from .fake import FakeAgent, refusal, task_of
from .other_client import OtherClient
from .scripted import ScriptedModule

OpenVisit = Callable[..., Visit]
SDK = Path(__file__).parents[1] / "client" / "servers" / "sdk1.py"
CARD = ".well-known/agent-card.json"

pytestmark = pytest.mark.process


@contextmanager
def exploring(agent: str, home: Path, **variables: str) -> Iterator[tuple[str, Process]]:
    """Run `apcore-a2a explore`; yield the base URL of its page, and its process."""
    with process([*COMMAND, "explore", agent], home, variables) as explorer:
        address = explorer.wait_for(r"Explorer of \S+: (http://127\.0\.0\.1:\d+/\S+)")
        yield address.removesuffix("/explorer"), explorer


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=PATIENCE)


def raw_get(host: str, path: str) -> int:
    """Get a path that other clients would normalize; return the status."""
    with closing(HTTPConnection(host, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def state(page: Page) -> Any:
    return page.get_by_role("region", name="Result").get_by_role("status").first


class OneInterface:
    """An application whose Agent Cards list only one interface of A2A 1.0.

    Args:
        app: The application.
        binding: The binding of the interface.
    """

    def __init__(self, app: ASGIApp, binding: str) -> None:
        self._app = app
        self._binding = binding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith(CARD):
            return await self._app(scope, receive, send)
        body = bytearray()

        async def collect(message: Message) -> None:
            body.extend(message.get("body", b""))

        await self._app(scope, receive, collect)
        card = json.loads(body)
        card["supportedInterfaces"] = [
            interface
            for interface in card["supportedInterfaces"]
            if (interface["protocolBinding"], interface["protocolVersion"])
            == (self._binding, "1.0")
        ]
        return await JSONResponse(card)(scope, receive, send)


@pytest.fixture(scope="module")
def sdk_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve an agent built with a2a-sdk."""
    port = free_port()
    home = tmp_path_factory.mktemp("sdk")
    with process([sys.executable, str(SDK), str(port)], home) as agent:
        url = f"http://127.0.0.1:{port}"
        agent.wait_for_card(url)
        yield url


@pytest.fixture
def fake() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def fake_agent(fake: FakeAgent) -> Iterator[str]:
    with running(fake.app()) as url:
        fake.card["supportedInterfaces"] = [
            {"url": f"{url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ]
        yield url


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_an_agent_of_the_sdk_is_called_by_the_page_and_by_copied_requests(
    open_visit: OpenVisit, sdk_agent: str, tmp_path: Path, version: str
) -> None:
    with exploring(sdk_agent, tmp_path) as (address, _):
        page = open_visit(address).go("skills/echo")
        page.get_by_label("Protocol version").select_option(f"A2A {version}")
        page.get_by_role("textbox", name="Text", exact=True).fill("count 3")
        press_run(page)
        expect(state(page)).to_have_text("completed")
        artifact = page.get_by_role("region", name="Artifact numbers")
        expect(artifact.locator("pre")).to_have_text("123")
        beside = page.get_by_role("group", name="Beside the input")
        beside.get_by_role("button", name="Code").click()
        code = page.get_by_role("group", name="Copy this request").locator("pre")
        path = "jsonrpc" if version == "1.0" else "v03"
        expect(code).to_contain_text(f"'{sdk_agent}/{path}'")
        assert urlsplit(address).path not in code.inner_text()
        output = subprocess.run(
            ["bash", "-c", code.inner_text()], capture_output=True, check=True, timeout=PATIENCE
        )
        assert b"completed" in output.stdout.lower()


@pytest.mark.parametrize(
    ("base", "version", "path"),
    [("rest", "1.0", "/rest/message:stream"), ("rest03", "0.3", "/rest03/v1/message:stream")],
)
def test_an_agent_of_the_sdk_that_only_has_http_json_is_called(
    open_visit: OpenVisit, sdk_agent: str, tmp_path: Path, base: str, version: str, path: str
) -> None:
    with exploring(f"{sdk_agent}/{base}", tmp_path) as (address, _):
        visit = open_visit(address)
        page = visit.go("skills/echo")
        expect(page.get_by_label("Protocol version")).to_have_value(version)
        page.get_by_role("textbox", name="Text", exact=True).fill("count 3")
        press_run(page)
        expect(state(page)).to_have_text("completed")
        artifact = page.get_by_role("region", name="Artifact numbers")
        expect(artifact.locator("pre")).to_have_text("123")
        beside = page.get_by_role("group", name="Beside the input")
        beside.get_by_role("button", name="Code").click()
        code = page.get_by_role("group", name="Copy this request").locator("pre")
        expect(code).to_contain_text(f"'{sdk_agent}{path}'")
        output = subprocess.run(
            ["bash", "-c", code.inner_text()], capture_output=True, check=True, timeout=PATIENCE
        )
        assert b"completed" in output.stdout.lower()
        beside.get_by_role("button", name="Result").click()
        page.get_by_role("textbox", name="Text", exact=True).fill("ask")
        press_run(page, "wait")
        expect(state(page)).to_have_text("input-required")
        page.get_by_role("region", name="Result").get_by_role("textbox").fill("that one")
        page.get_by_role("region", name="Result").get_by_role("button", name="Reply").click()
        expect(state(page)).to_have_text("completed")
        visit.go("tasks/unknown")
        expect(page.get_by_text("This task doesn't exist, or you can't access it.")).to_be_visible()


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_requests_to_a_tenant_name_it(open_visit: OpenVisit, tmp_path: Path, binding: str) -> None:
    app = create_app(registry(), tenants={"counting": "text.stats"}, shutdown_timeout=0)
    with running(OneInterface(app, binding)) as agent:
        with exploring(f"{agent}/counting", tmp_path) as (address, _):
            visit = open_visit(address)
            page = visit.go("skills/text.stats")
            page.get_by_text("Fill in an example:").locator("..").get_by_role(
                "button"
            ).first.click()
            press_run(page)
            expect(state(page)).to_have_text("completed")
            visit.go("tasks")
            expect(page.get_by_role("row", name="completed")).to_be_visible()
        with closing(OtherClient(agent)) as client:
            assert client.call("ListTasks")["tasks"] == []
            assert len(client.call("ListTasks", tenant="counting")["tasks"]) == 1


def test_the_page_says_that_it_cannot_call_an_agent_with_grpc_alone(
    open_visit: OpenVisit, fake: FakeAgent, fake_agent: str, tmp_path: Path
) -> None:
    fake.card["supportedInterfaces"] = [
        {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    ]
    with exploring(fake_agent, tmp_path) as (address, _):
        page = open_visit(address).go("skills/work")
        press_run(page, "wait")
        failure = page.get_by_role("region", name="Result").get_by_role("alert")
        expect(failure).to_contain_text("no JSON-RPC or HTTP+JSON interface of A2A 1.0")
        expect(failure).to_contain_text("Its card lists GRPC of A2A 1.0.")
        assert fake.received == []


def test_an_agent_of_this_project_is_explored_as_on_its_own_page(
    open_visit: OpenVisit, tmp_path: Path
) -> None:
    with (
        running(registry(), name="Test agent") as agent,
        exploring(agent, tmp_path) as (address, _),
    ):
        visit = open_visit(address)
        page = visit.go("skills/text.stats")
        page.get_by_text("Fill in an example:").locator("..").get_by_role("button").first.click()
        press_run(page)
        expect(state(page)).to_have_text("completed")
        visit.go("tasks")
        expect(page.get_by_role("row", name="completed")).to_be_visible()
        visit.go("requests")
        expect(page.get_by_text("valid A2A 1.0").first).to_be_visible()


def test_a_stream_is_passed_on_chunk_by_chunk(open_visit: OpenVisit, tmp_path: Path) -> None:
    scripted = ScriptedModule()
    modules = Registry()
    modules.register("scripted", scripted)
    with running(modules, name="Test agent") as agent, exploring(agent, tmp_path) as (address, _):
        page = open_visit(address).go("skills/scripted")
        press_run(page)
        stream = scripted.next_stream()
        for number in (1, 2):
            stream.send({"n": number})
            expect(page.get_by_role("listbox", name="Events")).to_contain_text(f'"n":{number}')
        page.close()  # the agent cancels the task, since the proxy has closed the connection
        assert stream.ended.wait(PATIENCE)


def test_credentials_reach_the_agent_but_no_details_of_the_proxy_do(
    open_visit: OpenVisit, fake: FakeAgent, fake_agent: str, tmp_path: Path
) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}
    fake.card["securitySchemes"] = schemes
    fake.refuses = lambda request: (
        None if request.headers.get("x-key") == "sesame" else refusal(401)
    )
    fake.replies["SendMessage"] = lambda params: {"task": task_of()}
    with exploring(fake_agent, tmp_path) as (address, _):
        page = open_visit(address).go("skills/work")
        page.get_by_role("button", name="Sign in").first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").first.fill("sesame")
        dialog.get_by_role("button", name="Sign in").click()
        press_run(page, "wait")
        expect(state(page)).to_have_text("completed")
        token = urlsplit(address).path.strip("/")
        _, request = next(call for call in fake.received if call[0] == "SendMessage")
        assert request.headers["x-key"] == "sesame"
        assert request.headers["host"] == urlsplit(fake_agent).netloc
        assert token not in str(request.headers.raw)
        assert not {"origin", "referer", "cookie"} & {*request.headers}


def test_only_the_printed_address_is_served(fake_agent: str, tmp_path: Path) -> None:
    with exploring(fake_agent, tmp_path) as (address, _):
        root = address.rpartition("/")[0]
        assert get(f"{address}/{CARD}").json()["name"] == "Fake"
        for path in ("", "/explorer", f"/{CARD}", f"/wrong/{CARD}", "/wrong/explorer"):
            assert get(root + path).status_code == 404, path
        assert get(f"{address}/{CARD}", host="evil.example").status_code == 404
        assert get(f"{address}/{CARD}", origin="https://evil.example").status_code == 404
        assert get(f"{address}/{CARD}", origin=root).status_code == 200


def test_at_port_80_browsers_name_only_the_host() -> None:
    with running(AgentProxy("http://agent.example", "token").app(80)) as url:
        for host in ("127.0.0.1", "localhost"):
            response = get(f"{url}/token/explorer", host=host, origin=f"http://{host}")
            assert response.status_code == 200


def test_no_request_goes_to_another_host_that_a_card_names(
    open_visit: OpenVisit, fake: FakeAgent, fake_agent: str, tmp_path: Path
) -> None:
    elsewhere = FakeAgent()
    with running(elsewhere.app()) as other, exploring(fake_agent, tmp_path) as (address, _):
        fake.card["supportedInterfaces"][0]["url"] = f"{other}/"
        page = open_visit(address).go("skills/work")
        press_run(page, "wait")
        failure = page.get_by_role("region", name="Result").get_by_role("alert")
        expect(failure).to_contain_text(f"points to {other}/, which is not at")
        assert elsewhere.received == []
        assert fake.received == []


def test_redirects_are_not_followed(tmp_path: Path, fake: FakeAgent, fake_agent: str) -> None:
    fake.replies["GetTask"] = lambda params: refusal(307, location="https://evil.example/")
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}
    with exploring(fake_agent, tmp_path) as (address, _):
        headers = {"A2A-Version": "1.0"}
        answer = httpx.post(f"{address}/", json=call, headers=headers, trust_env=False)
        assert answer.status_code == 502
        assert "redirects to https://evil.example/" in answer.json()["error"]["message"]


def test_the_browser_runs_nothing_that_the_agent_sends(tmp_path: Path) -> None:
    """Through the proxy, the agent's pages have the origin of the explorer."""
    hostile = {
        "set-cookie": "a=b",
        "refresh": "0; url=https://evil.example/",
        "link": "<https://evil.example/>; rel=preload",
        "content-security-policy-report-only": "img-src 'none'; report-uri https://evil.example/",
        "referrer-policy": "unsafe-url",
    }
    page = HTMLResponse("<script>alert(1)</script>", headers=hostile)
    fake = FakeAgent()
    routes = [*fake.app().routes, Route("/page", lambda request: page)]
    with running(Starlette(routes=routes)) as agent, exploring(agent, tmp_path) as (address, _):
        answer = get(f"{address}/page")
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert {*hostile} & {*answer.headers} == {"referrer-policy"}


def test_no_path_leads_out_of_the_agent(tmp_path: Path) -> None:
    """Other applications at the same host must not get the credentials for the agent."""
    paths = list[bytes]()

    def record_path(request: Request) -> PlainTextResponse:
        paths.append(request.scope["raw_path"])
        return PlainTextResponse("")

    fake = FakeAgent()
    mounted = Starlette(routes=[*fake.app().routes, Route("/{path:path}", record_path)])
    site = Starlette(routes=[Mount("/agents/a", mounted), Route("/{path:path}", record_path)])
    with running(site) as url, exploring(f"{url}/agents/a", tmp_path) as (address, _):
        host, token = urlsplit(address).netloc, urlsplit(address).path
        for path in (
            *("../../secret", "..%2f..%2fsecret", "%2e%2e/%2E%2E/secret", "x/../../../secret"),
            *("..%5c..%5csecret", "..", "%2e%2e", "tasks/..%2f..%2f..%2fsecret"),
        ):
            assert raw_get(host, f"{token}/{path}") == 502, path
        assert paths == []
        for path in ("/secret", "//evil.example/secret", "http://evil.example/", f"{url}/secret"):
            assert raw_get(host, f"{token}/{path}") == 200, path
        assert {path[:10] for path in paths} == {b"/agents/a/"}
        paths.clear()
        get(f"{address}/tasks/a%2Fb?x=1")
        assert paths == [b"/agents/a/tasks/a%2Fb"]


def test_the_page_says_that_the_agent_is_down(open_visit: OpenVisit, tmp_path: Path) -> None:
    with ExitStack() as serving:
        agent = serving.enter_context(running(FakeAgent().app()))
        with exploring(agent, tmp_path) as (address, _):
            page = open_visit(address).go()
            expect(page.get_by_role("heading", name="Fake")).to_be_visible()
            serving.close()
            page.reload()
            expect(page.get_by_role("alert")).to_contain_text(f"{agent}/ can't be reached")


def explore_and_fail(agent: str, home: Path) -> str:
    """Run the command, expect it to fail, and return its message."""
    command = [*COMMAND, "explore", agent]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(home),
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_the_command_says_that_there_is_no_agent(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert f"{nowhere}/ can't be reached" in explore_and_fail(nowhere, tmp_path)
    with running(Starlette(routes=[Route(f"/{CARD}", lambda request: HTMLResponse("hi"))])) as site:
        message = explore_and_fail(site, tmp_path)
        assert f"{site}/ is not an A2A agent: {site}/{CARD} has no Agent Card" in message
    with running(Starlette()) as site:
        assert "has no Agent Card: HTTP 404" in explore_and_fail(site, tmp_path)


def test_a_card_that_is_too_large_is_refused(tmp_path: Path) -> None:
    large = HTMLResponse(b" " * 11_000_000)
    with running(Starlette(routes=[Route(f"/{CARD}", lambda request: large)])) as url:
        assert "has more than 10485760 bytes" in explore_and_fail(url, tmp_path)


def test_the_command_says_that_the_certificate_is_not_trusted(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    certificate = tmp_path / "both.pem"
    with listener() as sock:
        config = uvicorn.Config(FakeAgent().app(), ssl_certfile=certificate, log_level="warning")
        server = Server(config)
        thread = Thread(target=server.serve_in_thread, args=[[sock]])
        thread.start()
        try:
            assert server.settled.wait(PATIENCE)
            agent = f"https://127.0.0.1:{sock.getsockname()[1]}"
            assert "is not trusted" in explore_and_fail(agent, tmp_path)
            trusted = str(tmp_path / "authority.pem")
            with exploring(agent, tmp_path, SSL_CERT_FILE=trusted) as (address, _):
                assert get(f"{address}/{CARD}").json()["name"] == "Fake"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def test_the_command_says_that_the_agent_does_not_speak_tls(tmp_path: Path) -> None:
    with running(FakeAgent().app()) as url:
        message = explore_and_fail(url.replace("http://", "https://"), tmp_path)
    assert "can't be reached over TLS" in message
    assert "Check the scheme and the port of its URL" in message
