"""Cards whose signature is valid, missing, broken by a change, or made with another key."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apcore import Executor, Registry
from apcore_a2a_auth import CardVerifier
from apcore_a2a_client import CardRefusedError
from apcore_a2a_remote import RemoteAgent, remote_agents
from cryptography.hazmat.primitives.asymmetric import ec

from tests.auth.tokens import P256, KeyPair
from tests.server.inloop import ActionModule, app_of, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import running

pytestmark = pytest.mark.anyio

KEY = [P256.private_pem]
STRANGER = KeyPair("stranger", "ES256", ec.generate_private_key(ec.SECP256R1()))


class CardChanger:
    """An ASGI application that changes the card of another application."""

    def __init__(self, app: Any, **members: Any) -> None:
        self.app = app
        self.members = members

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not (scope["type"] == "http" and scope["path"] == "/.well-known/agent-card.json"):
            await self.app(scope, receive, send)
            return
        sent: list[Any] = []

        async def collect(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, collect)
        card = json.loads(b"".join(message.get("body", b"") for message in sent[1:]))
        body = json.dumps({**card, **self.members}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def serving_signed_card(**changed: Any) -> Iterator[str]:
    """Serve an agent with a signed card, whose members may be changed on the way."""
    registry, options = registry_of({"work": ActionModule(echo)}), {"card_key": KEY}
    source: Any = registry
    if changed:
        source, options = CardChanger(app_of(registry, **options), **changed), {}
    with running(source, **options) as url:
        yield url


def pinned_keys(tmp_path: Path, key: KeyPair) -> list[str]:
    """Write a public key into a file, and return the value of `card_keys`."""
    path = tmp_path / "key.pem"
    path.write_bytes(key.pem)
    return [str(path)]


async def test_a_signed_card_is_trusted_by_the_keys_of_its_origin() -> None:
    registry = Registry()
    with serving_signed_card() as url:
        async with RemoteAgent(url, name="c", trust="require") as agent:
            assert await agent.register(registry) == ["remote.c.work"]
            assert await Executor(registry).call_async("remote.c.work", {"a": 1}) == {"a": 1}


async def test_a_signed_card_is_trusted_by_a_pinned_key(tmp_path: Path) -> None:
    with serving_signed_card() as url:
        entry = {"name": "c", "server_url": url, "trust": "require"}
        (agent,) = remote_agents(
            [{**entry, "card_keys": pinned_keys(tmp_path, P256)}], expose=False
        )
        async with agent:
            assert await agent.register(Registry()) == ["remote.c.work"]


CHANGED: dict[str, Any] = {"changed": {"name": "Another agent"}, "unsigned": {"signatures": []}}


@pytest.mark.parametrize("change", ["changed", "unsigned", "wrong key"])
async def test_a_card_without_a_valid_signature_is_refused_or_logged(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving_signed_card(**CHANGED.get(change, {})) as url:
        key = STRANGER.pem if change == "wrong key" else P256.pem
        options: dict[str, Any] = {"name": "c", "verify_card": CardVerifier([key])}
        registry = Registry()
        async with RemoteAgent(url, trust="require", **options) as agent:
            with pytest.raises(CardRefusedError):
                await agent.register(registry)
            assert not agent.is_ready()
        assert not [*registry.iter(include_hidden=True)]
        async with RemoteAgent(url, trust="warn", **options) as agent:
            assert await agent.register(registry) == ["remote.c.work"]
        assert "remote_card_untrusted" in [
            getattr(record, "event", "") for record in caplog.records
        ]
        async with RemoteAgent(url, name="c", trust="off") as agent:
            assert await agent.register(Registry()) == ["remote.c.work"]


async def test_only_the_signed_members_of_a_verified_card_are_used() -> None:
    # members that 1.0 does not have are not signed, so they are not used
    with serving_signed_card(note="added on the way") as url:
        verifier = CardVerifier([P256.pem])
        async with RemoteAgent(url, name="c", trust="require", verify_card=verifier) as agent:
            await agent.register(Registry())
            assert agent.card is not None
            assert "note" not in agent.card.extra
        async with RemoteAgent(url, name="c") as agent:
            await agent.register(Registry())
            assert agent.card is not None
            assert agent.card.extra["note"] == "added on the way"


def test_without_the_auth_package_the_error_says_how_to_install_it() -> None:
    entry: dict[str, Any] = {"name": "c", "server_url": "https://agent.example.com"}
    entries: dict[str, dict[str, Any]] = {
        "trust": {**entry, "trust": "require"},
        "card_keys": {**entry, "trust": "warn", "card_keys": ["key.pem"]},
        "mint": {**entry, "mint": {"key": "key.pem"}},
    }
    code = f"""
import sys
sys.modules["apcore_a2a_auth"] = None
from apcore_a2a_remote import remote_agents
for entry in {[*entries.values()]!r}:
    try:
        remote_agents([entry], expose=False)
    except ImportError as error:
        print(error)
"""
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for feature, line in zip(entries, printed.splitlines(), strict=True):
        assert feature in line
        assert "pip install 'apcore-a2a-remote[auth]'" in line
