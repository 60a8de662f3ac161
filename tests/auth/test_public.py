"""Public names of the distribution, and the modules that its import loads."""

import subprocess
import sys
from pathlib import Path

import apcore_a2a_auth
import pytest
from apcore_a2a_auth import AuthError, ConfigurationError, KeysUnavailableError, oauth2

NAMES = [
    "APIKeyAuthenticator",
    "AuthError",
    "CardSignatureError",
    "CardSigner",
    "CardVerifier",
    "ChainAuthenticator",
    "ClaimMapping",
    "ConfigurationError",
    "JWTAuthenticator",
    "KeysUnavailableError",
    "SigningKey",
    "api_key",
    "bearer",
    "forward_identity",
    "hash_key",
    "mint",
    "oauth2",
    "open_id_connect",
]


def test_the_public_names_are_sorted_and_exist() -> None:
    assert apcore_a2a_auth.__all__ == NAMES == sorted(NAMES)
    assert all(hasattr(apcore_a2a_auth, name) for name in NAMES)


def test_every_public_name_except_errors_has_an_example() -> None:
    objects = [getattr(apcore_a2a_auth, name) for name in NAMES if not name.endswith("Error")]
    assert all("Example:" in (public.__doc__ or "") for public in objects)


@pytest.mark.parametrize("error", [ConfigurationError, KeysUnavailableError])
def test_errors_have_one_root(error: type[Exception]) -> None:
    assert issubclass(error, AuthError)
    assert issubclass(ConfigurationError, ValueError)
    assert not issubclass(KeysUnavailableError, ValueError)


def test_the_distribution_is_typed() -> None:
    assert (Path(apcore_a2a_auth.__file__).parent / "py.typed").exists()


@pytest.mark.smoke
@pytest.mark.process
def test_the_import_loads_no_server() -> None:
    code = "import sys, apcore_a2a_auth; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert not {"a2a.server", "apcore_a2a_server", "uvicorn"} & set(result.stdout.split())


def test_oauth_2_is_declared_with_one_of_two_flows() -> None:
    scopes = {"agent": "Call the agent"}
    flows = oauth2("https://idp/token", scopes).oauth2_security_scheme.flows
    assert flows.client_credentials.token_url == "https://idp/token"
    assert flows.client_credentials.scopes == scopes
    scheme = oauth2("https://idp/token", scopes, authorization_url="https://idp/login")
    code = scheme.oauth2_security_scheme.flows.authorization_code
    assert (code.token_url, code.authorization_url) == ("https://idp/token", "https://idp/login")
    assert code.scopes == scopes
