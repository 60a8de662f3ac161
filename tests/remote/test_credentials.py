"""Credentials of remote agents in the configuration: OAuth 2 clients, and tokens for callers."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from apcore import Identity
from apcore_a2a_auth import SigningKey, mint
from apcore_a2a_client import A2AAuthError, APIKey, ClientCredentials, SyncA2AClient
from apcore_a2a_remote import remote_agents
from apcore_a2a_remote.config import SECRET_VARIABLE

from tests.auth.tokens import P256
from tests.client.test_client_credentials import SECRET, Issuer, issuing
from tests.facade.processes import COMMAND, Process, process
from tests.serving import PATIENCE

WHOAMI = """
from pydantic import BaseModel

class Free(BaseModel, extra="allow"):
    pass

class Whoami:
    description = "Tells who calls."
    input_schema = output_schema = Free

    def execute(self, inputs, context):
        identity = context.identity
        return {"id": identity.id, "roles": list(identity.roles)}
"""
AUDIENCE, ISSUER = "https://tools.example.com", "https://gateway.example.com"
USER_KEY = "secret-of-those-who-sign-tokens-for-users"
LISTEN = ["--host", "127.0.0.1", "--port", "0"]


def user_token() -> str:
    return mint(Identity("ada", roles=("operator",)), "gateway", key=USER_KEY)


def start_gateway(
    stack: ExitStack, folder: Path, remote: dict[str, Any], **variables: str
) -> Process:
    """Start a gateway that authenticates its callers, with a remote agent."""
    (folder / "gateway.yaml").write_text(
        yaml.safe_dump(
            {
                "version": "1",
                "project": {"name": "gateway"},
                "apcore-a2a": {
                    "auth_type": "bearer",
                    "auth_audience": "gateway",
                    "remote": [remote],
                },
            }
        ),
        encoding="utf-8",
    )
    variables = {"APCORE_A2A_AUTH_KEY": USER_KEY, **variables}
    command = [*COMMAND, "serve", "--config", "gateway.yaml", *LISTEN]
    return stack.enter_context(process(command, folder, variables))


def start_remote(stack: ExitStack, folder: Path, variables: dict[str, str]) -> Process:
    (folder / "whoami.py").write_text(WHOAMI, encoding="utf-8")
    command = [*COMMAND, "serve", "whoami.py", "--auth-type", "bearer", *LISTEN]
    return stack.enter_context(process(command, folder, variables))


@pytest.mark.process
@pytest.mark.parametrize("kind", ["key", "key set"])
def test_a_gateway_signs_the_identity_of_the_caller_and_the_agent_verifies_it(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "minting.pem").write_bytes(P256.private_pem)
    (tmp_path / "public.pem").write_bytes(P256.pem)
    variables = {
        "APCORE_A2A_AUTH_AUDIENCE": AUDIENCE,
        "APCORE_A2A_AUTH_ROLES_CLAIM": "roles",
    }
    with ExitStack() as stack:
        if kind == "key":
            variables |= {"APCORE_A2A_AUTH_KEY": "public.pem"}
        else:
            from tests.client.raw import raw, reply

            key_set = {"keys": [SigningKey(P256.private_pem).public_jwk]}
            server = stack.enter_context(raw(lambda request: reply(key_set)))
            variables |= {"APCORE_A2A_AUTH_JWKS_URL": f"{server.url}/keys"}
        remote = start_remote(stack, tmp_path, variables)
        entry = {
            "name": "tools",
            "server_url": remote.url,
            "mint": {"key": "minting.pem", "audience": AUDIENCE, "issuer": ISSUER},
        }
        gateway = start_gateway(stack, tmp_path, entry)
        published = httpx.get(f"{gateway.url}/.well-known/jwks.json", trust_env=False).json()
        assert published == {"keys": [SigningKey(P256.private_pem).public_jwk]}
        with SyncA2AClient(gateway.url, auth=f"Bearer {user_token()}", timeout=PATIENCE) as client:
            identity = client.call("remote.tools.whoami", {})
            assert identity == {"id": "ada", "roles": ["operator"]}
        with (
            SyncA2AClient(remote.url, auth=f"Bearer {user_token()}", timeout=PATIENCE) as client,
            pytest.raises(A2AAuthError),
        ):
            client.call("whoami", {})  # the agent does not accept a token for the gateway
        assert "eyJ" not in gateway.log + remote.log


@pytest.mark.process
def test_a_gateway_gets_its_own_token_as_an_oauth_client(tmp_path: Path) -> None:
    issuer = Issuer()
    token = mint(Identity("gateway", type="service"), AUDIENCE, key=USER_KEY)
    issuer.members["access_token"] = token
    with ExitStack() as stack:
        server = stack.enter_context(issuing(issuer))
        variables = {"APCORE_A2A_AUTH_KEY": USER_KEY, "APCORE_A2A_AUTH_AUDIENCE": AUDIENCE}
        remote = start_remote(stack, tmp_path, variables)
        entry = {
            "name": "tools",
            "server_url": remote.url,
            "client_id": "gateway",
            "token_url": f"{server.url}/token",
            "scope": "agents",
        }
        secret = {f"{SECRET_VARIABLE}TOOLS": SECRET}
        gateway = start_gateway(stack, tmp_path, entry, **secret)
        with SyncA2AClient(gateway.url, auth=f"Bearer {user_token()}", timeout=PATIENCE) as client:
            assert client.call("remote.tools.whoami", {})["id"] == "gateway"
        assert len(issuer.tokens) == 1
        assert SECRET not in gateway.log
        # the variable with the secret is not taken for a misspelled option
        assert "is not an option" not in gateway.log


def test_each_kind_of_credentials_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{SECRET_VARIABLE}C", "secret")
    entry = {"name": "c", "server_url": "https://agent.example.com"}
    for members, kind in [
        ({"client_id": "gateway", "issuer": "https://login.example.com"}, ClientCredentials),
        ({"api_key": "key"}, APIKey),
        ({"token": "token"}, str),
    ]:
        (agent,) = remote_agents([{**entry, **members}], expose=False)
        assert isinstance(agent._options["auth"], kind)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"client_id": "gateway"}, "APCORE_A2A_REMOTE_SECRET_C"),
        ({"scope": "agents"}, "needs client_id"),
        ({"client_secret": "s3cret"}, "needs client_id for client_secret"),
        ({"token": "t0ken", "api_key": "k3y"}, "only one of"),
        ({"mint": {}}, "mint.key"),
        ({"mint": {"key": "no-such.pem"}}, "no-such.pem"),
        ({"mint": {"key": "no-such.pem", "secret": "s3cret"}}, "mint.secret"),
        ({"mint": "no-such.pem"}, "wrong type for mint"),
        ({"card_keys": ["no-such.pem"]}, "needs trust"),
        ({"card_keys": ["no-such.pem"], "trust": "require"}, "no-such.pem"),
        ({"timeout": "long"}, "not a duration"),
        ({"timeout": True}, "wrong type for timeout"),
        ({"colour": "red"}, "unknown key colour"),
        ({"server_url": None}, "without server_url"),
    ],
)
def test_an_invalid_entry_is_refused_and_its_secrets_are_not_shown(
    members: dict[str, Any], problem: str
) -> None:
    entry = {"name": "c", "server_url": "https://agent.example.com", **members}
    with pytest.raises(ValueError, match=problem) as caught:
        remote_agents([entry], expose=False)
    assert not [secret for secret in ("t0ken", "k3y", "s3cret") if secret in str(caught.value)]
