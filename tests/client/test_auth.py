"""Credentials: where they are sent, and where they must not be shown."""

import base64
import gc
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx
import pytest
from apcore_a2a_client import (
    A2AAuthError,
    A2AError,
    A2AProtocolError,
    APIKey,
    AuthenticationInfo,
    PushNotificationConfig,
    SyncA2AClient,
)
from apcore_a2a_client.agent_urls import agent_url

from tests.serving import listener

from .raw import (
    CARD_PATH,
    CLOSE,
    CUT,
    KINDS,
    WIRES,
    Client,
    Request,
    Script,
    Step,
    agent,
    card,
    events,
    http_client,
    raw,
    reply,
    task,
)

pytestmark = pytest.mark.rotating("kind", "dialect")

SECRET = "s3cr3t"
HIDDEN = [SECRET, base64.b64encode(f"{SECRET}:{SECRET}".encode()).decode()]
"""The secret as plain text and as Basic credentials; neither may be shown."""

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


def ok(request: Request) -> Iterable[Step]:
    result: Any = {"task": task()}
    if request.bare_path == "/":
        result = {"jsonrpc": "2.0", "id": request.json["id"], "result": result}
    return reply(result)


def send_requests(kind: str, script: Script, **options: Any) -> list[Request]:
    """Return the requests that a client sends for the Agent Card and for a message."""
    with raw(script) as server, Client(kind, server.url, **options) as client:
        client.do("send_message", "hi")
        assert [request.is_card for request in server.requests] == [True, False]
    return server.requests


# Tokens


@kinds
@wires
@pytest.mark.parametrize(
    ("token", "header"),
    [
        ("Bearer s3cr3t", "Bearer s3cr3t"),
        ("s3cr3t", "Bearer s3cr3t"),
        ("Basic czM6Y3Q=", "Basic czM6Y3Q="),
        ("a-b._~+/=", "Bearer a-b._~+/="),
    ],
)
def test_a_token_is_sent_in_the_header_of_each_request(
    kind: str, token: str, header: str, binding: str, version: str
) -> None:
    script = agent(ok, **card("/", binding, version))
    for auth in (token, lambda: token):
        requests = send_requests(kind, script, auth=auth)
        assert [request.headers["authorization"] for request in requests] == [header] * 2


@kinds
def test_without_credentials_none_are_sent(kind: str) -> None:
    requests = send_requests(
        kind, agent(ok, securitySchemes={"k": {"type": "apiKey", "in": "query"}})
    )
    assert not {"authorization", "x-api-key", "cookie"} & {n for r in requests for n in r.headers}
    assert [request.path for request in requests] == [CARD_PATH, "/"]


class Tokens:
    """Source of a new token for each request."""

    def __init__(self) -> None:
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"token-{self.count}"

    async def fresh_async(self) -> str:
        return self.fresh()


@kinds
@pytest.mark.parametrize("is_async", [False, True])
def test_a_token_function_is_called_for_each_request(
    kind: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.001)
    if (kind, is_async) == ("sync", True):
        pytest.skip("the synchronous client cannot await")
    tokens = Tokens()
    failures: list[Iterable[Step]] = [reply(b"", 503), reply(b"", 307, location="/"), [CUT]]
    remaining = iter(failures)

    def script(request: Request) -> Iterable[Step]:
        if request.is_card:
            return reply(card("/"))
        return next(remaining, None) or reply(
            {"jsonrpc": "2.0", "id": request.json["id"], "result": task()}
        )

    auth = tokens.fresh_async if is_async else tokens.fresh
    with raw(script) as server, Client(kind, server.url, auth=auth, retries=3) as client:
        client.do("get_task", "t-1")
        client.do("get_task", "t-1")
    sent_tokens = [request.headers["authorization"] for request in server.requests]
    assert sent_tokens == [f"Bearer token-{number + 1}" for number in range(6)]


def test_the_sync_client_refuses_an_async_token_function() -> None:
    with raw(agent(ok)) as server:
        assert "await" in refusal(server.url)
        assert not server.requests
    gc.collect()  # an unawaited coroutine would warn now


def refusal(url: str) -> str:
    """Return the message of the error, without keeping the frames of its traceback alive."""
    with Client("sync", url, auth=Tokens().fresh_async) as client:
        try:
            client.do("send_message", "hi")
        except A2AError as error:
            return str(error)
    return ""


class NoTokenError(Exception):
    """Error of a user's own token function."""


@kinds
def test_an_error_of_a_token_function_is_raised(kind: str) -> None:
    def auth() -> str:
        raise NoTokenError

    with raw(agent(ok)) as server, Client(kind, server.url, auth=auth) as client:
        with pytest.raises(NoTokenError):
            client.do("send_message", "hi")
        assert not server.requests


BAD_SECRETS = [
    "",
    " ",
    f"{SECRET}\n",
    f"{SECRET}\r\nx: y",
    f" {SECRET}",
    f"{SECRET}ä",
    f"{SECRET}\0",
]


@kinds
@pytest.mark.parametrize("secret", BAD_SECRETS)
def test_an_invalid_header_value_is_refused_and_not_shown(kind: str, secret: str) -> None:
    for make_options in (
        lambda: {"auth": secret},
        lambda: {"auth": APIKey(secret)},
        lambda: {"headers": {"x-own": secret}},
    ):
        with pytest.raises(ValueError, match="characters") as caught:
            Client(kind, "http://127.0.0.1", **make_options())
        assert shows_no_secret(caught.value)
    with raw(agent(ok)) as server, Client(kind, server.url, auth=lambda: secret) as client:
        with pytest.raises((ValueError, A2AError)) as raised:
            client.do("send_message", "hi")
        assert shows_no_secret(raised.value)
        assert not server.requests


@kinds
@pytest.mark.parametrize("name", ["", " ", "a b", "x:", "x\n", "ä", "x\0"])
def test_an_invalid_header_name_is_refused(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"[Hh]eader") as caught:
        Client(kind, "http://127.0.0.1", headers={name: SECRET})
    assert shows_no_secret(caught.value)


@kinds
@pytest.mark.parametrize("auth", [5, ["token"], {"token": SECRET}, ("user", SECRET), b"token"])
def test_credentials_of_the_wrong_type_are_refused_and_not_shown(kind: str, auth: Any) -> None:
    with pytest.raises(TypeError) as caught:
        Client(kind, "http://127.0.0.1", auth=auth)
    assert shows_no_secret(caught.value)


# Authentication of httpx


@kinds
def test_httpx_authentication_is_supported(kind: str) -> None:
    requests = send_requests(kind, agent(ok), auth=httpx.BasicAuth("user", SECRET))
    encoded = base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert [request.headers["authorization"] for request in requests] == [f"Basic {encoded}"] * 2


@kinds
def test_httpx_authentication_with_challenges_is_supported(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        if "authorization" not in request.headers:
            challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256'
            return reply(b"", 401, www_authenticate=challenge)
        return agent(ok)(request)

    with (
        raw(script) as server,
        Client(kind, server.url, auth=httpx.DigestAuth("user", SECRET)) as client,
    ):
        assert client.do("send_message", "hi").id == "t-1"
    sent_headers = [request.headers.get("authorization", "") for request in server.requests]
    assert sent_headers[0] == ""
    assert all(header.startswith("Digest ") for header in sent_headers[1:])


@kinds
def test_the_authentication_of_an_httpx_client_is_used_by_default(kind: str) -> None:
    for auth, scheme in ((None, "Basic"), ("token", "Bearer")):
        httpx_client = http_client(kind, auth=("user", "password"))
        with (
            raw(agent(ok)) as server,
            Client(kind, server.url, http_client=httpx_client, auth=auth) as client,
        ):
            client.do("send_message", "hi")
        sent_schemes = [request.headers["authorization"].split()[0] for request in server.requests]
        assert sent_schemes == [scheme] * 2


# API keys


def scheme(location: str, name: str = "the-key") -> dict[str, Any]:
    """Return the scheme of an API key in the JSON of 0.3 and OpenAPI."""
    return {"type": "apiKey", "in": location, "name": name}


def scheme_v1(location: str, name: str = "the-key") -> dict[str, Any]:
    """Return the scheme of an API key in the JSON of 1.0."""
    return {"apiKeySecurityScheme": {"location": location, "name": name}}


BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}


def key_locations(request: Request) -> list[str]:
    """Return the locations of the key in a request."""
    query = httpx.URL(request.path).params
    cookies = request.headers.get("cookie", "").split("; ")
    return [
        *(f"header {name}" for name, value in request.headers.items() if value == SECRET),
        *(f"query {name}" for name, value in query.multi_items() if value == SECRET),
        *(f"cookie {cookie.split('=')[0]}" for cookie in cookies if cookie.endswith(f"={SECRET}")),
    ]


@kinds
@wires
@pytest.mark.parametrize("make_scheme", [scheme, scheme_v1])
@pytest.mark.parametrize("location", ["header", "query", "cookie"])
def test_a_key_is_sent_where_the_card_declares_it(
    kind: str, location: str, make_scheme: Callable[..., Any], binding: str, version: str
) -> None:
    card_members = card(
        "/", binding, version, securitySchemes={"b": BEARER, "k": make_scheme(location)}
    )
    first, second = send_requests(kind, agent(ok, **card_members), auth=APIKey(SECRET))
    assert key_locations(first) == ["header x-api-key"]
    assert key_locations(second) == [f"{location} the-key"]


@kinds
@pytest.mark.parametrize("location", ["header", "", "moon"])
@pytest.mark.parametrize("name", ["Host", "A2A-Version", ""])
def test_a_key_is_not_sent_in_a_reserved_header(kind: str, location: str, name: str) -> None:
    schemes = {"k": scheme(location, name)}
    with (
        raw(agent(ok, securitySchemes=schemes)) as server,
        Client(kind, server.url, auth=APIKey(SECRET)) as client,
    ):
        with pytest.raises(A2AProtocolError, match="reserved header"):
            client.do("send_message", "hi")
        assert not server.calls


@kinds
@pytest.mark.parametrize(
    "required",
    [
        {"securityRequirements": [{"schemes": {"second": {"list": []}}}]},
        {"securityRequirements": [{"schemes": {"b": {}}}, {"schemes": {"second": {}}}]},
        {"security": [{"second": []}]},
        {"security": [{"b": []}, {"second": []}]},
    ],
)
def test_a_key_is_sent_by_the_scheme_that_the_card_requires(kind: str, required: Any) -> None:
    schemes = {"first": scheme("header"), "second": scheme("query", "needed"), "b": BEARER}
    _, message_request = send_requests(
        kind, agent(ok, securitySchemes=schemes, **required), auth=APIKey(SECRET)
    )
    assert key_locations(message_request) == ["query needed"]


@kinds
@pytest.mark.parametrize("schemes", [{}, {"b": BEARER}, None])
def test_a_key_that_the_card_does_not_declare_is_sent_in_x_api_key(kind: str, schemes: Any) -> None:
    requests = send_requests(kind, agent(ok, securitySchemes=schemes), auth=APIKey(SECRET))
    assert [key_locations(request) for request in requests] == [["header x-api-key"]] * 2


@kinds
def test_a_key_is_sent_without_an_agent_card(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        return reply(b"", 404) if request.method == "GET" else ok(request)

    auth = APIKey(SECRET)
    with raw(script) as server, Client(kind, server.url, auth=auth, protocol="1.0") as client:
        client.do("send_message", "hi")
    assert [key_locations(request) for request in server.requests] == [["header x-api-key"]] * 3


@kinds
def test_after_the_first_card_a_key_is_always_sent_where_it_is_declared(kind: str) -> None:
    """Even in the request that fetches the card again."""
    script = agent(ok, securitySchemes={"k": scheme("query")})
    with raw(script) as server, Client(kind, server.url, auth=APIKey(SECRET), card_ttl=0) as client:
        client.do("send_message", "hi")
        client.do("send_message", "hi")
    locations_of_key = [key_locations(request) for request in server.requests]
    assert locations_of_key[1:] == [["query the-key"]] * 3


@kinds
def test_a_key_stays_where_it_was_if_a_newer_card_declares_a_reserved_header(kind: str) -> None:
    declared: list[Any] = [{"k": scheme("query")}, *[{"k": scheme("header", "Host")}] * 2]

    def script(request: Request) -> Iterable[Step]:
        schemes = declared.pop(0) if request.is_card else None
        return agent(ok, securitySchemes=schemes)(request)

    with raw(script) as server, Client(kind, server.url, auth=APIKey(SECRET), card_ttl=0) as client:
        client.do("send_message", "hi")
        for _ in range(2):
            with pytest.raises(A2AProtocolError, match="reserved header"):
                client.do("send_message", "hi")
    assert SECRET not in [request.headers["host"] for request in server.requests]


@kinds
def test_a_key_for_two_agents_is_sent_where_each_declares_it(kind: str) -> None:
    key = APIKey(SECRET)
    with (
        raw(agent(ok, securitySchemes={"k": scheme("query")})) as first_agent,
        raw(agent(ok, securitySchemes={"k": scheme("header")})) as second_agent,
        Client(kind, first_agent.url, auth=key) as first_client,
        Client(kind, second_agent.url, auth=key) as second_client,
    ):
        for _ in range(2):
            first_client.do("send_message", "hi")
            second_client.do("send_message", "hi")
    assert [key_locations(request) for request in first_agent.calls] == [["query the-key"]] * 2
    assert [key_locations(request) for request in second_agent.calls] == [["header the-key"]] * 2


@kinds
def test_a_key_keeps_other_cookies_and_parameters(kind: str) -> None:
    schemes = {"k": scheme("cookie")}
    headers = {"cookie": "a=b"}
    _, message_request = send_requests(
        kind, agent(ok, securitySchemes=schemes), auth=APIKey(SECRET), headers=headers
    )
    assert message_request.headers["cookie"] == f"a=b; the-key={SECRET}"

    def answer(request: Request) -> Iterable[Step]:
        return reply({"tasks": []})

    script = agent(
        answer, **card("/rest", "HTTP+JSON", securitySchemes={"k": scheme("query", "k&=")})
    )
    with raw(script) as server, Client(kind, server.url, auth=APIKey("a&b=c d")) as client:
        client.do("list_tasks", "c&1", page_size=5)
    parameters = dict(httpx.URL(server.calls[0].path).params)
    assert parameters == {"contextId": "c&1", "pageSize": "5", "k&=": "a&b=c d"}


# Secrets are not shown

AUTHS: dict[str, dict[str, Any]] = {
    "token": {"auth": f"Bearer {SECRET}"},
    "function": {"auth": lambda: SECRET},
    "basic": {"auth": httpx.BasicAuth(SECRET, SECRET)},
    "key": {"auth": APIKey(SECRET)},
    "headers": {"headers": {"x-own": SECRET}},
}
SCHEMES = {"header": scheme("header"), "query": scheme("query"), "cookie": scheme("cookie")}


def shows_no_secret(error: BaseException) -> bool:
    """Return whether no secret is in any representation of an error."""
    shown = [str(error), repr(error), *traceback.format_exception(error), repr(vars(error))]
    return not any(secret in text for secret in HIDDEN for text in shown)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Capture records of all levels and loggers; check afterwards that none shows a secret."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    records = caplog.get_records("call")  # `caplog.records` has those of the teardown by now
    shown = [text for record in records for text in (record.getMessage(), repr(record.args))]
    assert not any(secret in text for secret in HIDDEN for text in shown)


def faults(elsewhere: str) -> list[list[Step]]:
    return [
        reply(b"no", 401, www_authenticate="Bearer"),
        reply(b"no", 503),
        reply(b"<html>"),
        reply(b"x", content_encoding="gzip"),
        reply(b"", 307, location="/again?"),
        reply(b"", 307, location=elsewhere),
        reply(b"", 307, location="http://127.0.0.1:1/"),
        [*reply(b"{")[:1], CLOSE],
        [b"hello\r\n\r\n", CUT],
        [CUT],
        events(b"data: {\n\n"),
    ]


@kinds
@pytest.mark.parametrize("location", SCHEMES)
@pytest.mark.parametrize("credentials", AUTHS)
def test_secrets_are_in_no_log_record_and_no_error(
    kind: str, credentials: str, location: str, log: pytest.LogCaptureFixture
) -> None:
    current: list[list[Step]] = []
    card_members = card("/", securitySchemes={"k": SCHEMES[location]})
    script = agent(lambda _: current[-1], **card_members)
    with (
        raw(lambda _: reply(b"<html>")) as other_server,
        raw(script) as server,
        raw(lambda _: current[-1]) as card_server,
        Client(kind, server.url, **AUTHS[credentials]) as client,
        Client(kind, card_server.url, **AUTHS[credentials]) as client_without_card,
    ):
        for fault in faults(other_server.url):
            current.append(fault)
            for operation in ("send_message", "stream_message", "get_task"):
                with pytest.raises(A2AError) as caught:
                    client.do(operation, "hi")
                assert shows_no_secret(caught.value)
            with pytest.raises(A2AError) as caught:
                client_without_card.do("get_card")
            assert shows_no_secret(caught.value)
        assert any(secret in str(server.calls) for secret in HIDDEN)
        assert len(other_server.requests) == 1
        assert not any(secret in str(other_server.requests) for secret in HIDDEN)
    assert "HTTP Request: POST" in log.text


@kinds
@pytest.mark.parametrize("location", SCHEMES)
@pytest.mark.parametrize("credentials", AUTHS)
def test_secrets_are_in_no_error_of_a_failed_connection(
    kind: str, credentials: str, location: str, log: pytest.LogCaptureFixture
) -> None:
    with listener() as unused:
        card_members = card(f"http://127.0.0.1:{unused.getsockname()[1]}/")
        schemes = {"k": SCHEMES[location]}
        with (
            raw(lambda _: reply({**card_members, "securitySchemes": schemes})) as server,
            Client(
                kind,
                server.url,
                credentials_for=[card_members["supportedInterfaces"][0]["url"]],
                **AUTHS[credentials],
            ) as client,
        ):
            for operation in ("send_message", "stream_message", "get_task"):
                with pytest.raises(A2AError) as caught:
                    client.do(operation, "hi")
                assert shows_no_secret(caught.value)
    assert "connect_tcp.failed" in log.text


@kinds
@pytest.mark.parametrize("location", SCHEMES)
def test_a_key_is_in_no_log_record_of_a_successful_request(
    kind: str, location: str, log: pytest.LogCaptureFixture
) -> None:
    for wire in WIRES:
        card_members = card("/", *wire, securitySchemes={"k": SCHEMES[location]})
        send_requests(kind, agent(ok, **card_members), auth=APIKey(SECRET))
    assert "HTTP Request: POST" in log.text


@kinds
@pytest.mark.parametrize("location", SCHEMES)
def test_a_key_is_in_no_representation_of_a_request(kind: str, location: str) -> None:
    """Event hooks of httpx, as used for tracing, see the request."""
    representations: list[str] = []

    def record(message: Any) -> None:
        representations.extend(
            (repr(message), str(message.url), repr(message.url), f"{message.url}")
        )

    async def record_async(message: Any) -> None:
        record(message)

    hook: Any = record_async if kind == "async" else record
    hooks = {"request": [hook], "response": [hook]}
    httpx_client = http_client(kind, event_hooks=hooks)
    script = agent(ok, securitySchemes={"k": SCHEMES[location]})
    with (
        raw(script) as server,
        Client(kind, server.url, auth=APIKey(SECRET), http_client=httpx_client) as client,
    ):
        client.do("send_message", "hi")
    assert len(representations) == 16
    assert SECRET not in str(representations)
    assert key_locations(server.calls[0]) == [f"{location} the-key"]


def collect_own_objects(value: Any, found: dict[int, Any]) -> None:
    """Collect the objects of the client's package in *value*."""
    if id(value) in found:
        return
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            collect_own_objects(item, found)
    elif type(value).__module__.startswith("apcore_a2a_client"):
        found[id(value)] = value
        collect_own_objects(getattr(value, "__dict__", {}), found)


@kinds
@pytest.mark.parametrize("credentials", [name for name in AUTHS if name != "basic"])
def test_secrets_are_in_no_representation_of_a_client(kind: str, credentials: str) -> None:
    script = agent(ok, securitySchemes={"k": scheme("query")})
    with raw(script) as server, Client(kind, server.url, **AUTHS[credentials]) as client:
        client.do("send_message", "hi")
        objects: dict[int, Any] = {}
        collect_own_objects(client.client, objects)
        assert len(objects) > 4
        for instance in objects.values():
            assert SECRET not in repr(instance)
            assert SECRET not in str(instance)
    assert SECRET not in repr(APIKey(SECRET))


def test_secrets_are_in_no_representation_of_a_push_config() -> None:
    config = PushNotificationConfig(
        task_id="t-1",
        url="http://127.0.0.1/",
        token=SECRET,
        authentication=AuthenticationInfo(scheme="Bearer", credentials=SECRET),
    )
    assert SECRET not in repr(config)
    assert SECRET not in str(config)
    assert str(config.to_dict()).count(SECRET) == 2


@kinds
def test_an_error_has_the_challenge_but_not_the_credentials(kind: str) -> None:
    with (
        raw(agent(lambda _: reply(b"", 401, www_authenticate='Bearer realm="x"'))) as server,
        Client(kind, server.url, auth=SECRET) as client,
    ):
        with pytest.raises(A2AAuthError) as caught:
            client.do("send_message", "hi")
        assert caught.value.challenge == 'Bearer realm="x"'
        assert shows_no_secret(caught.value)


# URLs

BAD_URLS = [
    "",
    " ",
    "agent",
    "agent.example.com",
    "agent.example.com:8000/x",
    "localhost:8000",
    "//agent.example.com/",
    "/path",
    "?x",
    "ftp://h/",
    "file:///etc/passwd",
    "ws://h/",
    "unix:///tmp/socket",
    "mailto:someone@example.com",
    "javascript:alert(1)",
    "http:",
    "http://",
    "http:///path",
    "https://?x",
    "http:agent",
    "http:/agent",
    "http://:80",
    "http://h:0",
    "http://h:65536",
    "http://h:99999",
    "http://h:port",
    "http://h:-1",
    "http://[::1",
    "http://[zz]/",
    "http://a b/",
    "http://h\n/",
    "http://h/\n",
    "http://h/\0",
    "\thttp://h",
    " http://h",
    "http://xn--zzzzzz99999/",
    "http://\ud800/",
    "http://h/\ud800",
    "http://" + "a" * 70_000,
    None,
    5,
    b"http://h/",
    ["http://h/"],
    "http://user:s3cr3t@h/",
    "http://s3cr3t@h/",
    "http://:s3cr3t@h/",
    "https://user:s3cr3t@[bad",
    "http://user:s3cr3t@h:port/",
    "http://user:s3cr3t@h:99999/",
    "http://user:s3cr3t@h\n/",
    "http://user:s3cr3t@h/\ud800",
    "http://user:s3cr3t@xn--zzzzzz99999/",
    "ftp://user:s3cr3t@h/",
    "http://user:s3cr3t@ho st/",
    "user:s3cr3t@h",
    "ftp://h/?key=s3cr3t",
    "http:///?key=s3cr3t",
    "http://h:99999/?key=s3cr3t",
    "http://h:port/?key=s3cr3t#s3cr3t",
]


@kinds
@pytest.mark.parametrize("url", BAD_URLS, ids=lambda url: repr(url)[:40])
def test_an_invalid_url_is_refused_and_its_secrets_are_not_shown(kind: str, url: Any) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # shows_no_secret() checks its text
        Client(kind, url)
    assert shows_no_secret(caught.value)


def test_a_url_is_shown_without_its_secrets() -> None:
    assert repr(SyncA2AClient("http://h/x#s3cr3t")) == "<SyncA2AClient http://h/x>"
    with pytest.raises(ValueError, match="no query") as caught:
        SyncA2AClient("http://h/x?key=s3cr3t")
    assert "s3cr3t" not in str(caught.value)


@kinds
@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000/agent", "agent.example.com", "agent:80"]
)
def test_the_error_for_a_url_without_a_scheme_suggests_the_url_with_a_scheme(
    kind: str, url: str
) -> None:
    with pytest.raises(ValueError, match="scheme") as caught:
        Client(kind, f"{url}#s3cr3t")
    assert str(caught.value) == f"The agent's URL needs a scheme: got {url!r}, write http://{url}"


@kinds
@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("ftp://agent.example.com", ", not ftp://agent.example.com"),
        ("http://", ""),
        ("http:/agent.example.com", ""),
        ("agent.example.com:99999", ""),
        ("agent .example.com", "; this has a space or a line break"),
        ("http://127.0.0.1:8000 ", "; this has a space or a line break"),
        ("http://127.0.0.1:0", "; ports are from 1 to 65535"),
        ("http://127.0.0.1:65536/agent", "; ports are from 1 to 65535"),
        (f"http://{'a' * 64}.example", "; this host is not valid"),
        ("http://xn--/", "; this host is not valid"),
    ],
)
def test_the_error_for_an_invalid_url_says_what_is_expected(
    kind: str, url: str, detail: str
) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        Client(kind, url)
    expected = "The agent's URL must be http or https with a host, such as http://127.0.0.1:8000"
    assert str(caught.value) == f"{expected}{detail}"


@pytest.mark.parametrize(
    ("url", "normalized"),
    [
        ("http://h", "http://h/"),
        ("http://h/", "http://h/"),
        ("HTTPS://Agent.Example.COM:443/", "https://agent.example.com/"),
        ("http://h:8000/a/b/", "http://h:8000/a/b/"),
        ("http://h/.well-known/agent-card.json", "http://h/"),
        ("http://h/a/.well-known/agent.json", "http://h/a"),
        ("http://h/a%2Fb/c%20d", "http://h/a%2Fb/c%20d"),
        ("http://h/ä", "http://h/%C3%A4"),
        ("http://[::1]:8000/", "http://[::1]:8000/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://h/x#z", "http://h/x"),
    ],
)
def test_a_url_is_normalized(url: str, normalized: str) -> None:
    assert str(agent_url(url)) == normalized


@kinds
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("protocol", "2.0"),
        ("protocol", ""),
        ("card_ttl", -1),
        ("retries", -1),
        ("max_bytes", 0),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
    ],
)
def test_an_invalid_option_is_refused(kind: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        Client(kind, "http://127.0.0.1", **{option: value})
