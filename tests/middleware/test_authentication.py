"""Authentication: refusals, accepted callers, broken authenticators, and principals."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from timeit import repeat
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from a2a.types import SecurityScheme
from apcore import Context, Identity
from apcore_a2a_auth import (
    APIKeyAuthenticator,
    ChainAuthenticator,
    JWTAuthenticator,
    api_key,
    bearer,
)
from apcore_a2a_core import RefusalReason, TokenRefusedError
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import (
    Authentication,
    FrontMiddleware,
    RedactingFormatter,
    caller_of,
    principal_of,
)
from apcore_a2a_server.middleware.auth import joined_headers
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.checking_client import Json
from tests.server.inloop import ActionModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .byhand import CARD, KEY, OTHER_KEY, WITH_KEY, Answer, ask, authenticator, body

pytestmark = pytest.mark.anyio

SECRET = "the password of the directory is hunter2"
PAGE_ORIGIN = "https://page.example"
BEARER = {"authorization": "Bearer token"}


class FakeAuthenticator:
    """Authenticator whose result for request headers is given by a function."""

    def __init__(self, authenticate: Callable[[Mapping[str, str]], Any]) -> None:
        self._authenticate = authenticate
        self.calls: list[Mapping[str, str]] = []

    def authenticate(self, headers: Mapping[str, str]) -> Any:
        self.calls.append(headers)
        return self._authenticate(headers)


class AsyncFakeAuthenticator(FakeAuthenticator):
    """Authenticator that awaits before it answers."""

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        await asyncio.sleep(0)
        return super().authenticate(headers)


def function_raising(error: BaseException) -> Callable[[Mapping[str, str]], Any]:
    def fail(headers: Mapping[str, str]) -> Any:
        raise error

    return fail


async def fail_if_called(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the request was let through")


async def name_caller(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the caller's principal."""
    await JSONResponse(caller_of(scope)[0])(scope, receive, send)


def agent(auth: Any = None, **options: Any) -> Starlette:
    modules = registry_of({"work": ActionModule(echo)})
    return create_app(modules, url="http://agent.example", auth=auth or authenticator(), **options)


async def refusal(auth: Any, *headers: tuple[str, str]) -> Answer:
    return await ask(Authentication(fail_if_called, auth), "POST", "/", headers)


# Refusals


async def test_a_caller_without_a_token_gets_a_challenge() -> None:
    answer = await refusal(FakeAuthenticator(lambda headers: None))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["status"] == "UNAUTHENTICATED"
    assert answer.json["error"]["code"] == 401


@pytest.mark.parametrize("value", ["Bearer token", "Basic dTpw", "Bearer", "nonsense", ""])
async def test_the_challenge_for_refused_credentials_names_an_invalid_token(value: str) -> None:
    answer = await refusal(FakeAuthenticator(lambda headers: None), ("Authorization", value))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncFakeAuthenticator])
@pytest.mark.parametrize("reason", RefusalReason)
async def test_a_refused_token_gets_the_reason_in_challenge_body_and_log(
    reason: RefusalReason, kind: type[FakeAuthenticator], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    error = TokenRefusedError(reason)
    error.__cause__ = ValueError(SECRET)
    answer = await refusal(kind(function_raising(error)), *BEARER.items())
    text = f"Token refused: {reason.value}"
    assert answer.status == 401
    challenge = f'Bearer error="invalid_token", error_description="{text}"'
    assert answer.headers["www-authenticate"] == challenge
    assert answer.json == {
        "error": {"code": 401, "status": "UNAUTHENTICATED", "message": text, "details": []}
    }
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("INFO", text)
    assert (record.__dict__["event"], record.__dict__["reason"]) == ("token_refused", reason)
    assert record.exc_info is None


async def test_a_chain_refuses_invalid_tokens_with_a_reason_and_missing_ones_without() -> None:
    tokens = JWTAuthenticator("0123456789abcdef0123456789abcdef")
    chain = ChainAuthenticator(authenticator(), tokens)
    answer = await refusal(chain, *BEARER.items())
    assert answer.headers["www-authenticate"] == (
        'Bearer error="invalid_token", error_description="Token refused: malformed"'
    )
    for headers in ([], [("X-API-Key", "wrong")]):
        answer = await refusal(chain, *headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    accepted = await ask(Authentication(name_caller, chain), headers=[*WITH_KEY, *BEARER.items()])
    assert accepted.json == "apikey|ada"


class KeysOnlyAuthenticator(FakeAuthenticator):
    """Authenticator that declares an API key only."""

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        return {"apiKey": api_key()}


async def test_a_refused_token_gets_no_bearer_challenge_from_an_agent_with_api_keys() -> None:
    auth = KeysOnlyAuthenticator(function_raising(TokenRefusedError(RefusalReason.EXPIRED)))
    answer = await refusal(auth, *BEARER.items())
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "ApiKey")
    assert answer.json["error"]["message"] == "Token refused: expired"


async def test_an_agent_with_api_keys_sends_no_challenge_for_tokens() -> None:
    for headers in ([], [("X-API-Key", "wrong")], [("Authorization", "Bearer token")]):
        answer = await refusal(authenticator(), *headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "ApiKey")


class DeclaringAuthenticator(FakeAuthenticator):
    """Authenticator that declares an API key and a bearer token."""

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        return {"bearer": bearer(), "apiKey": api_key()}


async def test_the_challenge_prefers_tokens_to_api_keys() -> None:
    auth = DeclaringAuthenticator(lambda headers: None)
    assert (await refusal(auth)).headers["www-authenticate"] == "Bearer"
    assert (await refusal(auth, ("X-API-Key", "x"))).headers["www-authenticate"] == "Bearer"


# Web pages


@pytest.mark.parametrize("origins", [[PAGE_ORIGIN], ["*"]], ids=["named", "all"])
async def test_an_allowed_page_can_read_a_refusal(origins: list[str]) -> None:
    answer = await ask(agent(cors_origins=origins), "POST", "/", [("Origin", PAGE_ORIGIN)])
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] in (PAGE_ORIGIN, "*")
    exposed = answer.headers["access-control-expose-headers"]
    assert {"WWW-Authenticate", "Retry-After"} <= {*exposed.split(", ")}


async def test_preflight_requests_need_no_credentials() -> None:
    request_headers = [
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "x"),
    ]
    app = agent(cors_origins=[PAGE_ORIGIN])
    allowed = await ask(app, "OPTIONS", "/", [("Origin", PAGE_ORIGIN), *request_headers])
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, PAGE_ORIGIN)
    refused = await ask(
        app, "OPTIONS", "/", [("Origin", "https://other.example"), *request_headers]
    )
    assert refused.status == 400
    assert "access-control-allow-origin" not in refused.headers
    assert (await ask(app, "OPTIONS", "/", [("Origin", PAGE_ORIGIN)])).status == 401  # no preflight


FOREIGN_ORIGINS = [
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


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_page_of_another_origin_is_refused_even_with_credentials(
    origin: str, verb: str
) -> None:
    headers = [("Host", "agent.example"), ("Origin", origin), *WITH_KEY]
    answer = await ask(agent(), verb, "/", headers)
    assert (answer.status, answer.json["error"]["status"]) == (403, "PERMISSION_DENIED")


async def test_a_request_with_several_origin_headers_is_refused() -> None:
    two_origins = [("Origin", PAGE_ORIGIN), ("Origin", PAGE_ORIGIN)]
    assert (
        await ask(
            FrontMiddleware(fail_if_called, allowed_origins=[PAGE_ORIGIN]), "POST", "/", two_origins
        )
    ).status == 403


@pytest.mark.parametrize("origin", ["http://[", "http://[x]", "http://]/"])
async def test_an_invalid_origin_is_refused(origin: str) -> None:
    answer = await ask(FrontMiddleware(fail_if_called), "POST", "/", [("Origin", origin)])
    assert answer.status == 403


async def test_the_agents_own_pages_may_call() -> None:
    own_origin = [("Host", "agent.example"), ("Origin", "http://agent.example")]
    assert (await ask(agent(), "POST", "/", own_origin)).status == 401
    assert (await ask(agent(), "POST", "/", [*own_origin, *WITH_KEY], body())).status == 200


# Accepted callers


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncFakeAuthenticator], ids=["sync", "async"])
async def test_an_authenticator_may_be_async(kind: type[FakeAuthenticator]) -> None:
    auth = kind(lambda headers: Identity("ada") if "x-name" in headers else None)
    app = Authentication(name_caller, auth)
    assert (await ask(app)).status == 401
    assert (await ask(app, headers=[("X-Name", "ada")])).json == "ada"


async def test_an_authenticator_gets_lower_case_header_names() -> None:
    auth = FakeAuthenticator(lambda headers: Identity("ada"))

    async def upper_case(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.upper(), value) for name, value in scope["headers"]]
        await Authentication(name_caller, auth)({**scope, "headers": headers}, receive, send)

    assert (await ask(upper_case, headers=[("x-name", "\xe9"), ("cookie", "a")])).json == "ada"
    assert auth.calls == [{"x-name": "\xe9", "cookie": "a"}]


def test_a_repeated_header_among_thousands_of_others_is_joined_in_linear_time() -> None:
    distinct = [(f"x-{number}", "") for number in range(4000)]
    repeated = [*distinct, ("x-0", "again")]
    assert joined_headers(repeated)["x-0"] == ", again"
    once = min(repeat(partial(joined_headers, distinct), number=1))
    again = min(repeat(partial(joined_headers, repeated), number=1))
    assert again < 200 * once  # if it were quadratic, some 5,000 times


async def test_two_credentials_in_one_request_are_refused() -> None:
    for first, second in ((KEY, OTHER_KEY), (KEY, KEY), (KEY, ""), ("", KEY)):
        answer = await refusal(authenticator(), ("X-API-Key", first), ("X-API-Key", second))
        assert answer.status == 401
    auth = FakeAuthenticator(lambda headers: None)
    await refusal(auth, ("Authorization", "Bearer a"), ("authorization", "Bearer b"))
    assert auth.calls == [{"authorization": "Bearer a, Bearer b"}]  # both values, joined


async def test_a_module_sees_the_identity_of_its_caller() -> None:
    identities: list[Any] = []

    async def record(inputs: Inputs, context: "Context[Any]") -> Inputs:
        identities.append(context.identity)
        return inputs

    app = create_app(
        registry_of({"work": ActionModule(record)}), url="http://x", auth=authenticator()
    )
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {}}]}
    params = {"message": message, "metadata": {"skillId": "work"}}
    async with app.router.lifespan_context(app):
        request_body = body(json.dumps(params).encode())
        answer = await ask(app, "POST", "/message:send", WITH_KEY, request_body)
    assert answer.status == 200
    assert identities == [Identity("ada")]


async def test_members_of_the_scope_authenticate_no_caller() -> None:
    forged: Json = {"apcore_a2a.caller": ("ada", Identity("ada")), "user": "ada", "auth": ["ada"]}
    assert (await ask(Authentication(fail_if_called, authenticator()), **forged)).status == 401
    app = Authentication(name_caller, authenticator())
    assert (await ask(app, headers=[("X-API-Key", OTHER_KEY)], **forged)).json == "apikey|bob"


# Broken authenticators


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncFakeAuthenticator], ids=["sync", "async"])
@pytest.mark.parametrize("error", [ValueError, KeyError, OSError, RecursionError, TimeoutError])
async def test_an_authenticator_that_raises_lets_no_caller_in_and_its_error_is_not_shown(
    kind: type[FakeAuthenticator], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broken = error(SECRET)
    broken.__cause__ = RuntimeError(SECRET)
    answer = await refusal(kind(function_raising(broken)), *BEARER.items())
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json["error"]["status"] == "UNAVAILABLE"
    log_text = "".join(
        map(RedactingFormatter(logging.Formatter("%(message)s")).format, caplog.records)
    )
    assert error.__name__ in log_text
    assert SECRET not in log_text + str(answer)


INVALID_IDENTITIES = {
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


@pytest.mark.parametrize("identity", INVALID_IDENTITIES.values(), ids=INVALID_IDENTITIES)
@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncFakeAuthenticator], ids=["sync", "async"])
async def test_an_invalid_identity_is_refused(kind: type[FakeAuthenticator], identity: Any) -> None:
    assert (await refusal(kind(lambda headers: identity))).status == 503
    app = agent(kind(lambda headers: identity))
    assert (await ask(app, "GET", "/tasks")).status == 503
    assert (await ask(app, "GET", "/health")).status == 200


async def test_a_cancelled_authenticator_lets_no_caller_in() -> None:
    with pytest.raises(asyncio.CancelledError):
        await refusal(FakeAuthenticator(function_raising(asyncio.CancelledError())))


async def test_a_chain_with_a_broken_authenticator_still_accepts_the_callers_of_the_others() -> (
    None
):
    chain = ChainAuthenticator(
        FakeAuthenticator(function_raising(OSError(SECRET))), authenticator()
    )
    assert (await ask(Authentication(name_caller, chain), headers=WITH_KEY)).json == "apikey|ada"
    assert (await refusal(chain)).status == 503


@pytest.mark.parametrize("auth", [object(), SimpleNamespace(authenticate=None), "token", {}])
def test_an_invalid_authenticator_is_refused_and_the_missing_method_is_named(auth: Any) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    with pytest.raises(TypeError, match=r"auth: \w+ lacks authenticate"):
        create_app(modules, auth=auth)


def test_an_authenticator_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="keys"):
        APIKeyAuthenticator({})


# Web sockets and lifespan


async def connect(app: ASGIApp, path: str, **scope: Any) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    full_scope = {"type": "websocket", "path": path, "root_path": "", "headers": [], **scope}
    await app(full_scope, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/", "/health", CARD, "/nothing"])
async def test_web_sockets_are_refused_with_and_without_credentials(path: str) -> None:
    key_headers = [(b"x-api-key", KEY.encode())]
    for headers in ([], key_headers):
        for app in (agent(), Authentication(fail_if_called, authenticator(), public=[path])):
            sent = await connect(app, path, headers=headers)
            assert [(m["type"], m["code"]) for m in sent] == [("websocket.close", 1008)]


async def test_web_sockets_are_refused_without_an_authenticator() -> None:
    app = create_app(registry_of({"work": ActionModule(echo)}), url="http://x")
    sent = await connect(app, "/")
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_the_lifespan_needs_no_credentials() -> None:
    scope_types: list[str] = []

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        scope_types.append(scope["type"])

    app: Any = Authentication(record, authenticator())
    await app({"type": "lifespan"}, None, None)
    assert scope_types == ["lifespan"]


# Principals


def identity(name: str, issuer: str | None = None) -> Identity:
    return Identity(name, attrs={} if issuer is None else {"iss": issuer})


def test_one_name_of_two_issuers_is_two_principals() -> None:
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


def test_no_name_collides_with_the_principal_of_another_issuer() -> None:
    pairs = [*product(TEXTS, [None, *TEXTS]), ("ada", "https://one.example")]
    assert len({principal_of(identity(*pair)) for pair in pairs}) == len(pairs)


def test_no_name_collides_with_the_principal_of_another_authenticator() -> None:
    callers = [*product(TEXTS, [None, "", *TEXTS], ["", *TEXTS])]
    principals = {principal_of(identity(name, iss), space) for name, iss, space in callers}
    assert len(principals) == len(callers)


HMAC_SECRETS = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"]


def bearer_header(secret: str, **claims: Any) -> tuple[str, str]:
    claims = {"sub": "ada", "exp": time.time() + 60, **claims}
    return "Authorization", f"Bearer {jwt.encode(claims, secret, 'HS256')}"


async def principal_for(auth: Any, header: tuple[str, str]) -> str:
    answer = await ask(Authentication(name_caller, auth), headers=[header])
    assert answer.status == 200
    principal: str = answer.json
    return principal


async def test_equal_names_from_different_members_of_a_chain_are_different_principals() -> None:
    first, second = (JWTAuthenticator(secret) for secret in HMAC_SECRETS)

    def authenticator_for(header: str) -> FakeAuthenticator:
        return FakeAuthenticator(lambda headers: Identity("ada") if header in headers else None)

    custom = [authenticator_for(header) for header in ("x-one", "x-two")]
    members: list[Any] = [first, authenticator(), second, *custom]
    headers = [
        *(bearer_header(HMAC_SECRETS[0]), WITH_KEY[0], bearer_header(HMAC_SECRETS[1])),
        *(("X-One", "1"), ("X-Two", "2")),
    ]
    principals = [await principal_for(*pair) for pair in zip(members, headers, strict=True)]
    assert principals == ["jwt|ada", "apikey|ada", "jwt|ada", "ada", "ada"]
    nested = ChainAuthenticator(ChainAuthenticator(*members[:2]), ChainAuthenticator(*members[2:]))
    for chain in (ChainAuthenticator(*members), nested):
        principals_in_chain = [await principal_for(chain, header) for header in headers]
        assert principals_in_chain == ["jwt|ada", "apikey|ada", "jwt2|ada", "ada", "2|ada"]


async def test_neither_an_issuer_nor_a_claim_chooses_the_namespace_of_a_principal() -> None:
    auth = JWTAuthenticator(HMAC_SECRETS[0])
    token = bearer_header(HMAC_SECRETS[0], iss="apikey", namespace="apikey", sub="x|ada")
    assert await principal_for(auth, token) == "jwt|apikey|x%7Cada"


async def test_a_namespace_can_be_chosen() -> None:
    key = APIKeyAuthenticator({KEY: Identity("ada")}, namespace="machines")
    token = JWTAuthenticator(HMAC_SECRETS[0], namespace="people")
    assert await principal_for(key, WITH_KEY[0]) == "machines|ada"
    assert await principal_for(token, bearer_header(HMAC_SECRETS[0])) == "people|ada"
