"""Public keys of minted tokens: a gateway publishes them, and its agents verify with them."""

from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from apcore import Context, Identity, Registry
from apcore_a2a_auth import (
    ConfigurationError,
    JWTAuthenticator,
    SigningKey,
    forward_identity,
)
from apcore_a2a_client import A2AClient, TaskFailedError
from apcore_a2a_remote import RemoteAgent

from tests.auth.tokens import ED25519, P256, P384, SECRET
from tests.server.inloop import ActionModule, app_of, listening
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs
from tests.serving import PATIENCE, listener

from .agents import serving
from .test_identity import Tokens

pytestmark = pytest.mark.anyio

AUDIENCE, ISSUER = "https://weather.example.com", "https://gateway.example.com"
KEYS_PATH = "/.well-known/jwks.json"


def whoami() -> ActionModule:
    async def work(inputs: Inputs, context: Any) -> Any:
        return {"caller": context.identity.id}

    return ActionModule(work)


async def request_keys(*remotes: RemoteAgent, **options: Any) -> httpx.Response:
    """Return the response of a gateway to a request for its keys."""
    app = app_of(Registry(), companions=remotes, **{"url": None, **options})
    async with listening(app) as url, httpx.AsyncClient(trust_env=False) as http:
        return await http.get(url + KEYS_PATH)


def minting_agent(*keys: Any, name: str = "c") -> RemoteAgent:
    """Return an agent that can't be reached, with a function that mints tokens for it."""
    forward = forward_identity(AUDIENCE, key=[*keys])
    return RemoteAgent("http://127.0.0.1:9", name=name, forward=forward, retries=0)


async def test_an_agent_verifies_tokens_with_the_keys_that_the_gateway_publishes(
    tmp_path: Path,
) -> None:
    """The next key is published before it signs, so that the agent knows it by then."""
    keys = signing, next_key = tmp_path / "signing.pem", tmp_path / "next_key.pem"
    signing.write_bytes(P256.private_pem)
    next_key.write_bytes(ED25519.private_pem)
    forward = forward_identity(AUDIENCE, key=keys, issuer=ISSUER)
    with listener() as sock:
        keys_url = f"http://127.0.0.1:{sock.getsockname()[1]}{KEYS_PATH}"
        auth = JWTAuthenticator(jwks_url=keys_url, audience=AUDIENCE, issuer=ISSUER)
        async with serving({"whoami": whoami()}, auth=auth) as agent:
            remote = RemoteAgent(agent.url, name="c", expose=True, forward=forward)
            app = app_of(Registry(), companions=[remote], url=None, auth=Tokens())
            async with (
                listening(app, sock) as url,
                A2AClient(url, auth="Bearer ann", timeout=PATIENCE) as client,
            ):
                expected = {"caller": "ann"}
                assert await client.call("remote.c.whoami", {}) == expected
                signing.write_bytes(ED25519.private_pem)
                next_key.write_bytes(P256.private_pem)
                assert await client.call("remote.c.whoami", {}) == expected
                # this key was not published before, and the agent may not fetch keys again so soon
                signing.write_bytes(P384.private_pem)
                with pytest.raises(TaskFailedError):
                    await client.call("remote.c.whoami", {})


def test_the_first_of_several_keys_signs() -> None:
    keys = [P256.private_pem, ED25519.private_pem]
    context: Context[Any] = Context.create(identity=Identity("ada"))
    for order, algorithm in ((keys, "ES256"), (keys[::-1], "EdDSA")):
        token = forward_identity(AUDIENCE, key=order)(context)["authorization"].split()[1]
        assert jwt.get_unverified_header(token)["alg"] == algorithm
    with pytest.raises(ConfigurationError, match="at least one key"):
        forward_identity(AUDIENCE, key=[])


async def test_the_keys_of_all_agents_and_of_the_card_are_published_once() -> None:
    first = minting_agent(P256.private_pem, ED25519.private_pem)
    second = minting_agent(P384.private_pem, name="d")
    options = {"card_key": P256.private_pem, "url": "https://gateway.example.com"}
    response = await request_keys(first, second, **options)
    assert response.headers["content-type"] == "application/jwk-set+json"
    expected = [SigningKey(pair.private_pem).public_jwk for pair in (P256, ED25519, P384)]
    assert response.json() == {"keys": expected}


async def test_a_secret_is_not_published() -> None:
    assert (await request_keys(minting_agent(SECRET))).status_code == 404
    response = await request_keys(minting_agent(SECRET, P256.private_pem))
    assert response.json() == {"keys": [SigningKey(P256.private_pem).public_jwk]}


async def test_the_keys_can_be_read_without_authentication() -> None:
    assert (await request_keys(minting_agent(P256.private_pem), auth=Tokens())).status_code == 200
