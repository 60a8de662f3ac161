"""OAuth 2 tokens by client credentials, with a scripted authorization server."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from apcore_a2a_client import (
    A2AClient,
    A2AConnectionError,
    A2AError,
    ClientCredentials,
    CredentialsRefusedError,
    SyncA2AClient,
    TokenUnavailableError,
)

from tests.serving import listener

from .raw import (
    HOLD,
    KINDS,
    WIRES,
    Client,
    RawServer,
    Request,
    Step,
    agent,
    card,
    flood,
    head,
    http_client,
    raw,
    reply,
)
from .test_headers import answer

pytestmark = pytest.mark.rotating("kind")

SECRET = "s3cr3t/+ä"
ID = "gate way"
TOKEN_PATH = "/token"

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


class Issuer:
    """Script of an authorization server that numbers its tokens."""

    def __init__(self, **members: Any) -> None:
        self.members = {"token_type": "Bearer", "expires_in": 3600, **members}
        self.metadata: dict[str, Any] = {}
        self.metadata_paths = ["/.well-known/oauth-authorization-server"]
        self.tokens: list[str] = []
        self.answers: list[Iterable[Step]] = []
        """Answers to the next requests for tokens, instead of tokens."""

    def __call__(self, request: Request) -> Iterable[Step]:
        if request.bare_path in self.metadata_paths and request.method == "GET":
            url = f"http://{request.headers['host']}"
            return reply({"issuer": url, "token_endpoint": url + TOKEN_PATH, **self.metadata})
        if request.bare_path != TOKEN_PATH:
            return reply(b"", 404)
        if self.answers:
            return self.answers.pop(0)
        self.tokens.append(f"token-{len(self.tokens) + 1}")
        return reply({"access_token": self.tokens[-1], **self.members})


def accepting(*tokens: str) -> Callable[[Request], Iterable[Step]]:
    """Return the script of an agent that accepts only *tokens*."""
    expected = {f"Bearer {token}" for token in tokens}

    def script(request: Request) -> Iterable[Step]:
        if request.headers.get("authorization") in expected:
            return answer(request)
        return reply(b"", 401, www_authenticate='Bearer error="invalid_token"')

    return agent(script)


def credentials(url: str, **options: Any) -> ClientCredentials:
    """Return credentials with the token endpoint of the server at *url*."""
    arguments = {"client_id": ID, "client_secret": SECRET, "token_url": url + TOKEN_PATH, **options}
    return ClientCredentials(**arguments)


@contextmanager
def issuing(issuer: Issuer) -> Iterator[RawServer]:
    """Run an authorization server."""
    with raw(issuer) as server:
        yield server


def form(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    return {name: value for name, (value,) in parse_qs(request.body.decode()).items()}


def sent_tokens(requests: Sequence[Request]) -> list[str]:
    return [
        request.headers.get("authorization", "").removeprefix("Bearer ") for request in requests
    ]


@kinds
@wires
def test_one_token_is_requested_and_sent_with_every_request(
    kind: str, binding: str, version: str
) -> None:
    issuer = Issuer()
    with (
        issuing(issuer) as login,
        raw(agent(answer, **card("/", binding, version))) as server,
        Client(kind, server.url, auth=credentials(login.url, scope="a b")) as client,
    ):
        for _ in range(3):
            client.do("get_task", "t-1")
        assert sent_tokens(server.requests) == ["token-1"] * 4
        (request,) = login.requests
        assert form(request) == {"grant_type": "client_credentials", "scope": "a b"}
        pair = b"gate+way:s3cr3t%2F%2B%C3%A4"  # RFC 6749 §2.3.1
        assert request.headers["authorization"] == "Basic " + b64encode(pair).decode()


@kinds
def test_the_secret_can_be_sent_in_the_body(kind: str) -> None:
    auth_options: dict[str, Any] = {"auth_method": "post", "parameters": {"audience": "agent"}}
    with (
        issuing(Issuer()) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials(login.url, **auth_options)) as client,
    ):
        client.do("get_task", "t-1")
        (request,) = login.requests
        assert "authorization" not in request.headers
        grant = {"grant_type": "client_credentials", "audience": "agent"}
        assert form(request) == {**grant, "client_id": ID, "client_secret": SECRET}


@kinds
def test_the_authorization_server_gets_none_of_the_agents_headers(kind: str) -> None:
    with (
        issuing(Issuer()) as login,
        raw(agent(answer)) as server,
        Client(
            kind, server.url, auth=credentials(login.url), headers={"x-own": "for the agent"}
        ) as client,
    ):
        client.do("get_task", "t-1", headers={"x-call": "for the agent"})
        assert "for the agent" not in str(login.requests)


@kinds
@pytest.mark.parametrize(
    ("lifetime", "count"),
    [(3600, 1), (0.000001, 3), ("3600", 1), (None, 1), pytest.param(10**400, 1, id="huge")],
)
def test_a_token_is_renewed_when_it_has_expired(kind: str, lifetime: Any, count: int) -> None:
    issuer = Issuer(expires_in=lifetime)
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials(login.url)) as client,
    ):
        client.do("get_task", "t-1")
        client.do("get_task", "t-1")
        assert len(issuer.tokens) == count
        assert sent_tokens(server.requests)[-1] == issuer.tokens[-1]


@kinds
@pytest.mark.parametrize("name", ["get_task", "send_message", "stream_message"])
def test_a_refused_token_is_replaced_once(kind: str, name: str) -> None:
    arguments = ("t-1",)
    issuer = Issuer()
    with issuing(issuer) as login, raw(accepting("token-2")) as server:
        with Client(kind, server.url, auth=credentials(login.url)) as client:
            client.do(name, *arguments)
            client.do(name, *arguments)
        assert sent_tokens(server.calls) == ["token-1", "token-2", "token-2"]
        with (
            Client(kind, server.url, auth=credentials(login.url)) as client,
            pytest.raises(A2AError, match="401"),
        ):
            client.do(name, *arguments)
        assert sent_tokens(server.calls)[3:] == ["token-3", "token-4"]


@kinds
def test_the_endless_body_of_a_refusal_is_not_read(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        if sent_tokens([request]) == ["token-1"]:
            return flood(head(401), b"x" * 2**16)
        return answer(request)

    with (
        issuing(Issuer()) as login,
        raw(agent(script)) as server,
        Client(kind, server.url, auth=credentials(login.url)) as client,
    ):
        assert client.do("get_task", "t-1").id == "t-1"
        assert server.sent < 20 * 2**20


# Concurrent calls


@pytest.mark.anyio
async def test_concurrent_calls_share_one_request_for_a_token() -> None:
    issuer = Issuer()
    with issuing(issuer) as login, raw(agent(answer)) as server:
        async with A2AClient(server.url, auth=credentials(login.url)) as client:
            await asyncio.gather(*(client.get_task("t-1") for _ in range(20)))
    assert len(login.requests) == 1
    assert set(sent_tokens(server.requests)) == {"token-1"}


@pytest.mark.anyio
async def test_concurrent_calls_share_the_failure_of_their_request_for_a_token() -> None:
    issuer = Issuer()
    with issuing(issuer) as login, raw(agent(answer)) as server:
        async with A2AClient(server.url, auth=credentials(login.url), retries=0) as client:
            await client.get_card()
            auth = credentials(login.url)
            issuer.answers = [reply({"error": "invalid_client"}, 401)] * 20
            async with A2AClient(server.url, auth=auth, retries=0) as second_client:
                results = await asyncio.gather(
                    *(second_client.get_task("t-1") for _ in range(20)), return_exceptions=True
                )
    assert {type(result) for result in results} == {TokenUnavailableError}
    assert len(login.requests) == 2


@pytest.mark.anyio
async def test_after_a_cancelled_request_for_a_token_the_next_caller_requests_it() -> None:
    issuer = Issuer()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    issuer.answers = [never_answer(lambda: loop.call_soon_threadsafe(started.set))]
    with issuing(issuer) as login, raw(answer) as server:
        async with http_client("async", auth=credentials(login.url)) as http:
            first, second = (asyncio.create_task(http.get(server.url + "/tasks")) for _ in range(2))
            await started.wait()
            first.cancel()
            assert (await second).status_code == 200
    assert issuer.tokens == ["token-1"]
    assert sent_tokens(server.requests) == ["token-1"]


def never_answer(on_request: Callable[[], object]) -> Iterator[Step]:
    """Yield the steps of an answer that never comes; call *on_request* first."""
    on_request()
    yield HOLD


def test_threads_share_one_token() -> None:
    issuer = Issuer()
    with issuing(issuer) as login, raw(agent(answer)) as server:
        auth = credentials(login.url)

        def call() -> None:
            with SyncA2AClient(server.url, auth=auth) as client:
                client.get_task("t-1")

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(login.requests) == 1
        assert set(sent_tokens(server.requests)) == {"token-1"}


def test_event_loops_can_use_the_same_credentials() -> None:
    issuer = Issuer()
    with issuing(issuer) as login, raw(agent(answer)) as server:
        auth = credentials(login.url)

        async def call() -> None:
            async with A2AClient(server.url, auth=auth) as client:
                await asyncio.gather(client.get_task("t-1"), client.get_task("t-1"))

        for _ in range(2):
            asyncio.run(call())
        assert len(login.requests) == 1


# The issuer


@kinds
@pytest.mark.parametrize("path", ["oauth-authorization-server", "openid-configuration"])
def test_the_token_endpoint_is_found_in_the_metadata_of_the_issuer(kind: str, path: str) -> None:
    issuer = Issuer()
    issuer.metadata_paths = [f"/.well-known/{path}"]
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials("", token_url=None, issuer=login.url)) as client,
    ):
        client.do("get_task", "t-1")
        assert sent_tokens(server.requests) == ["token-1"] * 2


@kinds
def test_the_metadata_of_an_issuer_with_a_path_is_found_where_the_standards_say(kind: str) -> None:
    for path in (
        "/.well-known/oauth-authorization-server/realms/a",
        "/realms/a/.well-known/openid-configuration",
    ):
        issuer = Issuer()
        issuer.metadata_paths = [path]
        with issuing(issuer) as login, raw(agent(answer)) as server:
            url = f"{login.url}/realms/a"
            issuer.metadata = {"issuer": url}
            auth = credentials("", token_url=None, issuer=url)
            with Client(kind, server.url, auth=auth) as client:
                client.do("get_task", "t-1")
            assert sent_tokens(server.calls) == ["token-1"]


@kinds
@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"issuer": "https://other.example"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"token_endpoint": None}, "token_endpoint"),
        ({"token_endpoint": "ftp://x/token"}, "token_endpoint"),
        ({"token_endpoint": "http://u:s3cr3t@x/token"}, "token_endpoint"),
    ],
)
def test_wrong_metadata_is_refused(kind: str, metadata: Any, problem: str) -> None:
    issuer = Issuer()
    issuer.metadata = metadata
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials("", token_url=None, issuer=login.url)) as client,
    ):
        with pytest.raises(TokenUnavailableError, match=problem) as caught:
            client.do("get_task", "t-1")
        assert "s3cr3t" not in str(caught.value)
        assert not server.requests
        assert all(request.method == "GET" for request in login.requests)


@kinds
def test_the_metadata_says_how_the_secret_is_sent(kind: str) -> None:
    issuer = Issuer()
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials("", token_url=None, issuer=login.url)) as client,
    ):
        client.do("get_task", "t-1")
        assert form(login.requests[-1])["client_secret"] == SECRET


# The card


def oauth(url: str, **members: Any) -> dict[str, Any]:
    """Return the members of a card that name a token endpoint."""
    flow = {"tokenUrl": url + TOKEN_PATH, "scopes": {"read": "", "write": ""}}
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}},
        "login": {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}},
    }
    required = [{"schemes": {"login": {"list": ["read", "write"]}}}]
    return {"securitySchemes": schemes, "securityRequirements": required, **members}


def oauth_v03(url: str) -> dict[str, Any]:
    """Return the members of a card of A2A 0.3 that name a token endpoint."""
    flow = {"tokenUrl": url + TOKEN_PATH, "scopes": {"read": "", "write": ""}}
    scheme = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    return {"securitySchemes": {"login": scheme}, "security": [{"login": ["read", "write"]}]}


@kinds
@pytest.mark.parametrize("make_members", [oauth, oauth_v03])
def test_the_token_endpoint_is_the_one_in_the_card(kind: str, make_members: Any) -> None:
    issuer = Issuer()
    with (
        issuing(issuer) as login,
        raw(agent(answer, **make_members(login.url))) as server,
        Client(
            kind,
            server.url,
            auth=credentials("", token_url=None),
            credentials_for=[login.url],
            card_ttl=0,
        ) as client,
    ):
        client.do("get_task", "t-1")
        client.do("get_task", "t-1")
        assert sent_tokens(server.calls) == ["token-1", "token-1"]
        assert sent_tokens(server.requests)[0] == ""
        assert [form(request).get("scope") for request in login.requests] == ["read write"]


@kinds
def test_the_token_endpoint_is_found_in_the_metadata_of_an_issuer_in_the_card(kind: str) -> None:
    issuer = Issuer()
    issuer.metadata_paths = ["/.well-known/openid-configuration"]
    with issuing(issuer) as login:
        url = login.url + "/.well-known/openid-configuration"
        schemes = {"oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}}
        with (
            raw(agent(answer, securitySchemes=schemes)) as server,
            Client(
                kind,
                server.url,
                auth=credentials("", token_url=None),
                credentials_for=[login.url],
            ) as client,
        ):
            client.do("get_task", "t-1")
            assert sent_tokens(server.calls) == ["token-1"]


@kinds
def test_the_secret_is_not_sent_to_an_origin_that_only_the_card_names(kind: str) -> None:
    with (
        issuing(Issuer()) as login,
        raw(agent(answer, **oauth(login.url))) as server,
        Client(kind, server.url, auth=credentials("", token_url=None)) as client,
    ):
        with pytest.raises(CredentialsRefusedError) as caught:
            client.do("get_task", "t-1")
        assert caught.value.foreign == login.url
        assert not login.requests
        assert not server.calls


@kinds
def test_the_metadata_of_an_issuer_in_the_card_cannot_name_another_origin(kind: str) -> None:
    issuer = Issuer()
    issuer.metadata_paths = ["/.well-known/openid-configuration"]
    with issuing(Issuer()) as elsewhere, issuing(issuer) as login:
        issuer.metadata = {"token_endpoint": elsewhere.url + TOKEN_PATH}
        url = login.url + "/.well-known/openid-configuration"
        schemes = {"oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}}
        options = {"auth": credentials("", token_url=None), "credentials_for": [login.url]}
        with (
            raw(agent(answer, securitySchemes=schemes)) as server,
            Client(kind, server.url, **options) as client,
        ):
            with pytest.raises(CredentialsRefusedError) as caught:
                client.do("get_task", "t-1")
            assert caught.value.foreign == elsewhere.url
            assert not elsewhere.requests
            assert not server.calls


@kinds
def test_a_configured_endpoint_takes_precedence_over_the_card(kind: str) -> None:
    with (
        issuing(Issuer()) as login,
        raw(agent(answer, **oauth("https://elsewhere.example"))) as server,
        Client(kind, server.url, auth=credentials(login.url)) as client,
    ):
        client.do("get_task", "t-1")
        assert sent_tokens(server.calls) == ["token-1"]


@kinds
@pytest.mark.parametrize(
    "schemes", [{}, {"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}}}]
)
def test_a_card_without_a_token_endpoint_is_an_error(kind: str, schemes: Any) -> None:
    with (
        raw(agent(answer, securitySchemes=schemes)) as server,
        Client(kind, server.url, auth=credentials("", token_url=None)) as client,
    ):
        with pytest.raises(TokenUnavailableError, match="token_url or issuer"):
            client.do("get_task", "t-1")
        assert not server.calls


# Refusals and secrets


@kinds
@pytest.mark.parametrize(
    ("response", "error", "problem"),
    [
        (
            reply({"error": "invalid_client", "error_description": SECRET}, 401),
            "invalid_client",
            "invalid_client",
        ),
        (reply({"error": SECRET}, 400), "", "HTTP 400"),
        (reply(SECRET.encode(), 500), "", "HTTP 500"),
        (reply(b"", 302, location="/elsewhere"), "", "HTTP 302"),
        (reply(b"[]"), "", "HTTP 200"),
        (reply({"token_type": "bearer"}), "", "no token"),
        (reply({"access_token": f"{SECRET}\n"}), "", "no token"),
        (reply({"access_token": "a\nb"}), "", "no token"),
        (reply({"access_token": "a\x7f"}), "", "no token"),
        (reply({"access_token": "x", "token_type": "mac"}), "", "no bearer token"),
        (reply(b"x" * (2**18 + 1)), "", "too large"),
    ],
)
def test_a_failed_request_for_a_token_is_an_error_without_secrets(
    kind: str, response: list[Step], error: str, problem: str
) -> None:
    issuer = Issuer()
    issuer.answers = [response]
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials(login.url), retries=2) as client,
    ):
        with pytest.raises(TokenUnavailableError, match=problem) as caught:
            client.do("get_task", "t-1")
        assert caught.value.error == error
        assert SECRET not in str(caught.value)
        assert len(login.requests) == 1
        assert not server.requests
        assert client.do("get_task", "t-1").id == "t-1"


@kinds
def test_a_request_to_a_busy_authorization_server_is_retried(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.001)
    issuer = Issuer()
    issuer.answers = [reply(b"", 503), reply(b"", 429)]
    with (
        issuing(issuer) as login,
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials(login.url), retries=2) as client,
    ):
        assert client.do("send_message", "hi").id == "t-1"
        assert len(login.requests) == 3


@kinds
def test_an_authorization_server_that_is_down_is_named_and_nothing_is_sent(kind: str) -> None:
    with listener() as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with (
        raw(agent(answer)) as server,
        Client(kind, server.url, auth=credentials(url)) as client,
    ):
        with pytest.raises(A2AConnectionError, match=url) as caught:
            client.do("send_message", "hi")
        assert not caught.value.sent
        assert not server.requests


@pytest.mark.parametrize(
    "options",
    [
        {"token_url": "ftp://x"},
        {"token_url": "https://u:s3cr3t@x/token"},
        {"token_url": "nonsense"},
        {"token_url": None, "issuer": "x"},
        {"token_url": "https://x/token", "issuer": "https://x"},
        {"client_id": ""},
        {"client_secret": ""},
        {"auth_method": "jwt"},
    ],
)
def test_wrong_arguments_are_refused_and_not_shown(options: Any) -> None:
    with pytest.raises(ValueError, match=r"client|auth_method|token_url|issuer") as caught:
        credentials("https://x", **options)
    assert "s3cr3t" not in str(caught.value)


@kinds
def test_nothing_shows_the_secret_or_a_token(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    with (
        issuing(Issuer()) as login,
        raw(agent(answer)) as server,
    ):
        auth = credentials(login.url)
        with Client(kind, server.url, auth=auth) as client:
            client.do("get_task", "t-1")
        pair = b64encode(b"gate+way:s3cr3t%2F%2B%C3%A4").decode()
        for shown in (repr(auth), str(auth), caplog.text, repr(client.client)):
            assert not any(secret in shown for secret in (SECRET, "token-1", pair))
