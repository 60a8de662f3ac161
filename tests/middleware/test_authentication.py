"""Who calls is known before anything else happens, or nothing happens."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from a2a.types import SecurityScheme
from apcore import Context, Identity
from apcore_a2a_auth import APIKeyAuthenticator, ChainAuthenticator, api_key, bearer
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import (
    Authentication,
    OriginGuard,
    RedactingFormatter,
    caller_of,
    principal_of,
)
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.asking import Json
from tests.server.inloop import Does, give_back, registry_of
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .byhand import CARD, KEY, OTHER_KEY, WITH_KEY, Answer, ask, body, keys

pytestmark = pytest.mark.anyio

SECRET = "the password of the directory is hunter2"
PAGE = "https://page.example"
BEARER = {"authorization": "Bearer token"}


class Tells:
    """An authenticator that does what *tell* says with the headers."""

    def __init__(self, tell: Callable[[Mapping[str, str]], Any]) -> None:
        self._tell = tell
        self.asked: list[Mapping[str, str]] = []

    def authenticate(self, headers: Mapping[str, str]) -> Any:
        self.asked.append(headers)
        return self._tell(headers)


class TellsLater(Tells):
    """The same, after a while."""

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        await asyncio.sleep(0)
        return super().authenticate(headers)


def raising(error: BaseException) -> Callable[[Mapping[str, str]], Any]:
    def tell(headers: Mapping[str, str]) -> Any:
        raise error

    return tell


async def nobody_passes(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("somebody got through")


async def who(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells who calls."""
    await JSONResponse(caller_of(scope)[0])(scope, receive, send)


def agent(auth: Any = None, **options: Any) -> Starlette:
    modules = registry_of({"work": Does(give_back)})
    return create_app(modules, url="http://agent.example", auth=auth or keys(), **options)


async def refusal(auth: Any, *headers: tuple[str, str]) -> Answer:
    return await ask(Authentication(nobody_passes, auth), "POST", "/", headers)


# What a refusal says


async def test_who_has_no_token_is_asked_for_one() -> None:
    answer = await refusal(Tells(lambda headers: None))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["status"] == "UNAUTHENTICATED"
    assert answer.json["error"]["code"] == 401


@pytest.mark.parametrize("value", ["Bearer token", "Basic dTpw", "Bearer", "nonsense", ""])
async def test_who_has_a_wrong_token_is_told_so(value: str) -> None:
    answer = await refusal(Tells(lambda headers: None), ("Authorization", value))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


async def test_where_only_keys_will_do_nobody_is_asked_for_a_token() -> None:
    for headers in ([], [("X-API-Key", "wrong")], [("Authorization", "Bearer token")]):
        answer = await refusal(keys(), *headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "ApiKey")


class Declares(Tells):
    """Declares both kinds of scheme."""

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        return {"bearer": bearer(), "apiKey": api_key()}


async def test_where_tokens_will_do_too_they_are_asked_for() -> None:
    auth = Declares(lambda headers: None)
    assert (await refusal(auth)).headers["www-authenticate"] == "Bearer"
    assert (await refusal(auth, ("X-API-Key", "x"))).headers["www-authenticate"] == "Bearer"


# Web pages


@pytest.mark.parametrize("origins", [[PAGE], ["*"]], ids=["named", "all"])
async def test_a_page_that_may_call_can_read_why_it_was_refused(origins: list[str]) -> None:
    answer = await ask(agent(cors_origins=origins), "POST", "/", [("Origin", PAGE)])
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] in (PAGE, "*")
    exposed = answer.headers["access-control-expose-headers"]
    assert {"WWW-Authenticate", "Retry-After"} <= {*exposed.split(", ")}


async def test_a_page_may_ask_without_credentials_whether_it_may_call() -> None:
    asking = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "x")]
    app = agent(cors_origins=[PAGE])
    allowed = await ask(app, "OPTIONS", "/", [("Origin", PAGE), *asking])
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    other = await ask(app, "OPTIONS", "/", [("Origin", "https://other.example"), *asking])
    assert other.status == 400
    assert "access-control-allow-origin" not in other.headers
    assert (await ask(app, "OPTIONS", "/", [("Origin", PAGE)])).status == 401


FOREIGN = [
    "https://other.example",
    "null",
    "",
    "http://agent.example:81",
    "https://agent.example",
    "http://agent.example.other.example",
    "http://agent.example@other.example",
    "agent.example",
    "*",
    "\xff",
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_foreign_page_is_refused_even_with_credentials(origin: str, verb: str) -> None:
    headers = [("Host", "agent.example"), ("Origin", origin), *WITH_KEY]
    answer = await ask(agent(), verb, "/", headers)
    assert (answer.status, answer.json["error"]["status"]) == (403, "PERMISSION_DENIED")


async def test_several_origins_are_foreign() -> None:
    both = [("Origin", PAGE), ("Origin", PAGE)]
    assert (await ask(OriginGuard(nobody_passes, [PAGE]), "POST", "/", both)).status == 403


@pytest.mark.parametrize("origin", ["http://[", "http://[x]", "http://]/"])
async def test_what_is_no_origin_is_foreign(origin: str) -> None:
    answer = await ask(OriginGuard(nobody_passes), "POST", "/", [("Origin", origin)])
    assert answer.status == 403


async def test_the_agents_own_pages_may_call() -> None:
    own = [("Host", "agent.example"), ("Origin", "http://agent.example")]
    assert (await ask(agent(), "POST", "/", own)).status == 401
    assert (await ask(agent(), "POST", "/", [*own, *WITH_KEY], body())).status == 200


# Who is let through


@pytest.mark.parametrize("kind", [Tells, TellsLater], ids=["at once", "later"])
async def test_an_authenticator_may_take_its_time(kind: type[Tells]) -> None:
    auth = kind(lambda headers: Identity("ada") if "x-name" in headers else None)
    app = Authentication(who, auth)
    assert (await ask(app)).status == 401
    assert (await ask(app, headers=[("X-Name", "ada")])).json == "ada"


async def test_an_authenticator_sees_headers_by_their_names_in_lower_case() -> None:
    auth = Tells(lambda headers: Identity("ada"))

    async def shouted(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.upper(), value) for name, value in scope["headers"]]
        await Authentication(who, auth)({**scope, "headers": headers}, receive, send)

    assert (await ask(shouted, headers=[("x-name", "\xe9"), ("cookie", "a")])).json == "ada"
    assert auth.asked == [{"x-name": "\xe9", "cookie": "a"}]


async def test_of_two_credentials_neither_wins() -> None:
    for first, second in ((KEY, OTHER_KEY), (KEY, KEY), (KEY, ""), ("", KEY)):
        answer = await refusal(keys(), ("X-API-Key", first), ("X-API-Key", second))
        assert answer.status == 401
    auth = Tells(lambda headers: None)
    await refusal(auth, ("Authorization", "Bearer a"), ("authorization", "Bearer b"))
    assert auth.asked == [{"authorization": "Bearer a, Bearer b"}]


async def test_a_module_gets_to_see_who_calls() -> None:
    seen: list[Any] = []

    async def look(inputs: Inputs, context: "Context[Any]") -> Inputs:
        seen.append(context.identity)
        return inputs

    app = create_app(registry_of({"work": Does(look)}), url="http://x", auth=keys())
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {}}]}
    params = {"message": message, "metadata": {"skillId": "work"}}
    async with app.router.lifespan_context(app):
        sent = body(json.dumps(params).encode())
        answer = await ask(app, "POST", "/message:send", WITH_KEY, sent)
    assert answer.status == 200
    assert seen == [Identity("ada")]


async def test_what_stands_in_the_scope_already_is_no_caller() -> None:
    forged: Json = {"apcore_a2a.caller": ("ada", Identity("ada")), "user": "ada", "auth": ["ada"]}
    assert (await ask(Authentication(nobody_passes, keys()), **forged)).status == 401
    with_key = Authentication(who, keys())
    assert (await ask(with_key, headers=[("X-API-Key", OTHER_KEY)], **forged)).json == "bob"


# Authenticators that do not work


@pytest.mark.parametrize("kind", [Tells, TellsLater], ids=["at once", "later"])
@pytest.mark.parametrize("error", [ValueError, KeyError, OSError, RecursionError, TimeoutError])
async def test_when_an_authenticator_raises_nobody_gets_in_and_nobody_is_told_why(
    kind: type[Tells], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broken = error(SECRET)
    broken.__cause__ = RuntimeError(SECRET)
    answer = await refusal(kind(raising(broken)), *BEARER.items())
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json["error"]["status"] == "UNAVAILABLE"
    told = "".join(map(RedactingFormatter(logging.Formatter("%(message)s")).format, caplog.records))
    assert error.__name__ in told
    assert SECRET not in told + str(answer)


NOBODIES = {
    "an object": object(),
    "a dict": {"id": "ada"},
    "text": "ada",
    "True": True,
    "False": False,
    "zero": 0,
    "a tuple": (),
    "no id": SimpleNamespace(id=None),
    "an empty id": SimpleNamespace(id=""),
    "a number for an id": SimpleNamespace(id=7),
    "bytes for an id": SimpleNamespace(id=b"ada"),
    "a list of attributes": SimpleNamespace(id="ada", attrs=["iss"]),
    "an issuer that is a number": SimpleNamespace(id="ada", attrs={"iss": 7}),
    "a class": Identity,
}


@pytest.mark.parametrize("identity", NOBODIES.values(), ids=NOBODIES)
@pytest.mark.parametrize("kind", [Tells, TellsLater], ids=["at once", "later"])
async def test_what_has_no_id_is_nobody(kind: type[Tells], identity: Any) -> None:
    assert (await refusal(kind(lambda headers: identity))).status == 503
    app = agent(kind(lambda headers: identity))
    assert (await ask(app, "GET", "/tasks")).status == 503
    assert (await ask(app, "GET", "/health")).status == 200


async def test_an_authenticator_that_is_canceled_lets_nobody_through() -> None:
    with pytest.raises(asyncio.CancelledError):
        await refusal(Tells(raising(asyncio.CancelledError())))


async def test_a_chain_with_a_broken_link_still_knows_who_another_knows() -> None:
    chain = ChainAuthenticator(Tells(raising(OSError(SECRET))), keys())
    assert (await ask(Authentication(who, chain), headers=WITH_KEY)).json == "ada"
    assert (await refusal(chain)).status == 503


@pytest.mark.parametrize("auth", [object(), SimpleNamespace(authenticate=None), "token", {}])
def test_what_can_not_authenticate_is_told_what_it_lacks(auth: Any) -> None:
    modules = registry_of({"work": Does(give_back)})
    with pytest.raises(TypeError, match=r"auth: \w+ lacks authenticate"):
        create_app(modules, auth=auth)


def test_an_authenticator_without_keys_is_no_authenticator() -> None:
    with pytest.raises(ValueError, match="keys"):
        APIKeyAuthenticator({})


# Connections that are no requests


async def connect(app: ASGIApp, path: str, **scope: Any) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asked = {"type": "websocket", "path": path, "root_path": "", "headers": [], **scope}
    await app(asked, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/", "/health", CARD, "/nothing"])
async def test_web_sockets_are_refused_whoever_asks(path: str) -> None:
    key = [(b"x-api-key", KEY.encode())]
    for headers in ([], key):
        for app in (agent(), Authentication(nobody_passes, keys(), public=[path])):
            sent = await connect(app, path, headers=headers)
            assert [(m["type"], m["code"]) for m in sent] == [("websocket.close", 1008)]


async def test_without_an_authenticator_web_sockets_are_refused_too() -> None:
    app = create_app(registry_of({"work": Does(give_back)}), url="http://x")
    sent = await connect(app, "/")
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_the_lifespan_is_nobodys_business() -> None:
    seen: list[str] = []

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    app: Any = Authentication(behind, keys())
    await app({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]


# Whom tasks belong to


def identity(name: str, issuer: str | None = None) -> Identity:
    return Identity(name, attrs={} if issuer is None else {"iss": issuer})


def test_the_same_name_of_two_issuers_is_two_principals() -> None:
    issuers = [None, "https://one.example", "https://two.example"]
    assert len({principal_of(identity("ada", issuer)) for issuer in issuers}) == 3


TEXTS = [
    "a",
    "a|",
    "|a",
    "a|a",
    "|",
    "a%7Ca",
    "%7C",
    "%",
    "%25",
    "a|a|a",
    "https://one.example|ada",
]


def test_no_name_makes_the_principal_of_another_issuer() -> None:
    pairs = [*product(TEXTS, [None, *TEXTS]), ("ada", "https://one.example")]
    assert len({principal_of(identity(*pair)) for pair in pairs}) == len(pairs)
