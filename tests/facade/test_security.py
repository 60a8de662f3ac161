"""The command's options for authentication, access rules, limits and logs."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from apcore_a2a.command.main import main
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.test_trust import AUDIENCE, Issuer
from tests.server.checking_client import Agent
from tests.serving import running

from .processes import COMMAND, SIGNALS, Process, extensions, process, use_environment

LOCAL = ["serve", "--host", "127.0.0.1", "--port", "0"]
KEY = "hunter2-" * 6
"""48 bytes that must not appear in any output."""
EXTENDED = "/agent/authenticatedExtendedCard"
PUBLIC = "/.well-known/agent-card.json"
BASE_CONFIG: dict[str, Any] = {"version": "1", "project": {"name": "Tests"}}
ALLOWED: dict[str, Any] = {"callers": ["@external"], "effect": "allow"}
TIRED_ONLY = {"conditions": {"roles": ["tired"]}}
RULES = {"rules": [{**ALLOWED, "targets": ["echo"]}, {**ALLOWED, "targets": ["nap"], **TIRED_ONLY}]}
Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a home and a working directory with modules and without configuration."""
    monkeypatch.chdir(tmp_path)
    extensions(tmp_path, "echo.py", "nap.py", "block.py")
    use_environment(monkeypatch, tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes bytes, or a value as JSON, to a file and returns its name."""

    def write(name: str, content: Any) -> str:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / name).write_bytes(data)
        return name

    return write


@contextmanager
def serving(
    home: Path, *flags: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[Process, httpx.Client]]:
    """Start a server with these flags and an anonymous client; check that its log lacks KEY."""
    with process([*COMMAND, *LOCAL, *flags], home, variables) as agent:
        with httpx.Client(base_url=agent.url, trust_env=False, timeout=20) as client:
            yield agent, client
        assert agent.end(SIGNALS[0]) == 0
    assert KEY not in agent.log


def skills(client: httpx.Client, headers: Mapping[str, str]) -> list[str]:
    """Return the skills on the extended card for a caller with these headers."""
    card = client.get(EXTENDED, headers=headers).raise_for_status().json()
    return [skill["id"] for skill in card["skills"]]


def check_access(
    client: httpx.Client, valid: Mapping[str, str], invalid: Mapping[str, str]
) -> None:
    """Check that *valid* headers authenticate a caller, and *invalid* or no headers do not."""
    for headers in ({}, invalid):
        assert client.get(EXTENDED, headers=headers).status_code == 401
    client.headers.update(valid)
    assert Agent(client, "1.0").send().state == "completed"


def bearer_headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed_headers(key: Any, algorithm: str = "HS256", **claims: Any) -> dict[str, str]:
    """Return the headers of a caller whose token is signed with *key*."""
    payload = {"sub": "ada", "exp": int(time.time()) + 300, **claims}
    return bearer_headers(jwt.encode(payload, key, algorithm))


def pem(key: rsa.RSAPrivateKey, *, private: bool = False) -> bytes:
    """Return a key in PEM."""
    if private:
        kind, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(serialization.Encoding.PEM, kind, encryption)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


@pytest.fixture(scope="module")
def pair() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


# Authentication and access rules


@pytest.mark.process
def test_the_jwt_secret_is_read_from_the_environment(tmp_path: Path) -> None:
    variables = {"APCORE_JWT_SECRET": KEY}
    flags = ("--auth-type", "bearer", "--auth-algorithms", "HS256", "--log-level", "debug")
    with serving(tmp_path, *flags, variables=variables) as (_, client):
        check_access(client, signed_headers(KEY), signed_headers(KEY, "HS384"))


@pytest.mark.process
def test_the_jwt_secret_can_be_an_option(tmp_path: Path) -> None:
    with serving(tmp_path, "--auth-type", "bearer", "--auth-key", KEY) as (_, client):
        check_access(client, signed_headers(KEY), signed_headers(KEY[::-1]))


@pytest.mark.process
def test_a_public_key_is_read_from_a_file(
    tmp_path: Path, write: Write, pair: rsa.RSAPrivateKey
) -> None:
    path = write("key.pem", pem(pair))
    with serving(tmp_path, "--auth-type", "bearer", "--auth-key", path) as (_, client):
        check_access(
            client,
            signed_headers(pair, "RS256"),
            signed_headers(rsa.generate_private_key(65537, 2048), "RS256"),
        )


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    with running(issuer.app) as issuer.url:
        yield issuer


@pytest.mark.process
@pytest.mark.parametrize("secret", ["", KEY])
def test_keys_are_fetched_from_an_issuer(
    secret: str, tmp_path: Path, write: Write, issuer: Issuer
) -> None:
    rules, realm = write("acl.json", RULES), {"roles": "tired early"}
    flags = ["--auth-type", "bearer", "--auth-issuer", issuer.url, "--auth-audience", AUDIENCE]
    flags += ["--auth-roles-claim", "realm.roles", "--acl", rules]
    with serving(tmp_path, *flags, variables={"APCORE_JWT_SECRET": secret}) as (_, client):
        assert client.get(EXTENDED, headers=bearer_headers(issuer.token("bob"))).status_code == 200
        assert skills(client, bearer_headers(issuer.token("bob"))) == ["echo"]
        assert skills(client, bearer_headers(issuer.token("ada", realm=realm))) == ["echo", "nap"]
        check_access(
            client,
            bearer_headers(issuer.token("ada")),
            bearer_headers(issuer.token("ada", aud="others")),
        )


@pytest.mark.process
def test_keys_are_fetched_from_a_jwks_url(tmp_path: Path, issuer: Issuer) -> None:
    flags = ["--auth-type", "bearer", "--auth-jwks-url", f"{issuer.url}/keys"]
    with serving(tmp_path, *flags, "--auth-audience", AUDIENCE) as (_, client):
        valid_token = issuer.token("ada", iss="https://anybody.example.com")
        check_access(
            client, bearer_headers(valid_token), bearer_headers(issuer.token("ada", aud="others"))
        )


@pytest.mark.process
@pytest.mark.smoke
def test_one_api_key_can_be_required_from_all_callers(tmp_path: Path) -> None:
    flags = ["--host", "0.0.0.0", "--auth-type", "apikey", "--auth-key", KEY]
    with serving(tmp_path, *flags) as (agent, client):
        assert client.get(EXTENDED).headers["www-authenticate"] == "ApiKey"
        check_access(client, {"X-API-Key": KEY}, {"X-API-Key": KEY[:-1]})
    assert "Anyone who can reach this address" not in agent.log


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "variables", "source"),
    [
        (["--auth-key", "sesame-5"], {}, "--auth-key"),
        ([], {"APCORE_A2A_AUTH_KEY": "sesame-5"}, "APCORE_A2A_AUTH_KEY"),
    ],
)
def test_the_warning_about_a_short_api_key_names_its_flag_or_variable(
    flags: list[str], variables: dict[str, str], source: str, tmp_path: Path
) -> None:
    options = ["--auth-type", "apikey", *flags]
    with serving(tmp_path, *options, variables=variables) as (agent, client):
        assert client.get(EXTENDED).status_code == 401
    (warning,) = [line for line in agent.log.splitlines() if "can be guessed" in line]
    assert f"{source}: 1 of 1 API keys (client)" in warning
    assert "sesame-5" not in agent.log


@pytest.mark.process
def test_each_caller_can_have_an_api_key(tmp_path: Path, write: Write) -> None:
    owners: dict[str, Any] = {"bob": {}, "ada": {"roles": ["tired"]}}
    keys = [{"id": n, "sha256": sha256(n.encode()).hexdigest(), **m} for n, m in owners.items()]
    flags = ["--auth-key", write("keys.yaml", {"keys": keys}), "--acl", write("acl.json", RULES)]
    with serving(tmp_path, "--auth-type", "apikey", *flags) as (_, client):
        assert skills(client, {"X-API-Key": "bob"}) == ["echo"]
        assert skills(client, {"X-API-Key": "ada"}) == ["echo", "nap"]
        check_access(client, {"X-API-Key": "bob"}, {"X-API-Key": keys[0]["sha256"]})


@pytest.mark.process
@pytest.mark.smoke
def test_security_options_are_read_from_the_environment(tmp_path: Path, write: Write) -> None:
    variables = {"APCORE_A2A_AUTH_TYPE": "apikey", "APCORE_A2A_AUTH_KEY": KEY}
    variables |= {"APCORE_A2A_ACL": write("acl.json", RULES), "APCORE_A2A_LOG_FORMAT": "json"}
    with serving(tmp_path, "--log-level", "debug", variables=variables) as (_, client):
        assert skills(client, {"X-API-Key": KEY}) == ["echo"]
        check_access(client, {"X-API-Key": KEY}, {"X-API-Key": "another"})


@pytest.mark.process
@pytest.mark.parametrize("in_our_section", [True, False])
def test_security_options_are_read_from_the_config_file(
    in_our_section: bool, tmp_path: Path, write: Write
) -> None:
    write("rules.json", RULES)
    keys = {"auth-type": "bearer", "auth-key": KEY, "access-log": False}
    rules: Any = {} if in_our_section else {"acl": {"root": "./rules.json"}}
    section = keys | ({"acl": "rules.json"} if in_our_section else {})
    path = write("config.yaml", {**BASE_CONFIG, **rules, "apcore-a2a": section})
    with serving(tmp_path, "--config", path) as (agent, client):
        assert skills(client, signed_headers(KEY, roles=["tired"])) == ["echo", "nap"]
        check_access(client, signed_headers(KEY), signed_headers(KEY[::-1]))
    assert "GET" not in agent.log


# Limits and logs


@pytest.mark.process
def test_requests_are_limited(tmp_path: Path) -> None:
    flags = ["--rate-limit", "3/hour", "--rate-limit-storage", "memory://"]
    with serving(tmp_path, *flags, "--auth-type", "apikey", "--auth-key", KEY) as (_, client):
        codes = [client.get("/nothing", headers={"X-API-Key": KEY}).status_code for _ in range(4)]
        assert codes == [404, 404, 404, 429]
        refused = client.get("/nothing", headers={"X-API-Key": KEY})
        assert int(refused.headers["retry-after"]) > 0
        assert client.get(PUBLIC).status_code == 200


@pytest.mark.process
def test_calls_of_a_skill_are_limited(tmp_path: Path) -> None:
    with serving(tmp_path, "--skill-rate-limit", "2/hour") as (_, client):
        agent = Agent(client, "1.0")
        assert [agent.send("echo").code for _ in range(3)] == [None, None, -32029]
        assert agent.send("nap", {"data": {"seconds": 0}}).code is None


@pytest.mark.process
def test_runs_are_limited(tmp_path: Path) -> None:
    flags = ["--max-runs-per-client", "2", "--max-runs-per-skill", "1", "--shutdown-timeout", "0"]
    with serving(tmp_path, *flags) as (_, client):
        agent, long_nap = Agent(client, "1.0"), {"data": {"seconds": 60}}
        agent.start("nap", parts=[long_nap])
        assert "of this skill" in agent.send("nap", long_nap).body["error"]["message"]
        agent.start("block", parts=[{"data": {}}])
        assert "of this client" in agent.send("echo").body["error"]["message"]


@pytest.mark.process
def test_a_request_must_arrive_in_time(tmp_path: Path) -> None:
    with serving(tmp_path, "--request-timeout", "0.2") as (_, client):
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port), timeout=9) as slow_socket:
            slow_socket.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
            assert slow_socket.recv(100).startswith(b"HTTP/1.1 408 ")
            assert slow_socket.recv(100) == b""


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


@pytest.mark.process
def test_the_log_can_be_json(tmp_path: Path) -> None:
    flags = ["--log-format", "json", "--auth-type", "apikey", "--auth-key", KEY]
    with serving(tmp_path, *flags) as (agent, client):
        url = client.base_url
        check_access(client, {"X-API-Key": KEY}, {"X-API-Key": "another"})
    requests = [line for line in lines(agent.log) if line["logger"] == "apcore_a2a.access"]
    assert [line["status"] for line in requests] == [401, 401, 200]
    fields = {name: requests[-1].get(name) for name in ("method", "path", "operation", "skill")}
    assert fields == {"method": "POST", "path": "/", "operation": "SendMessage", "skill": "echo"}
    assert requests[-1]["principal"] == "apikey|client"
    assert f"3 skills at {str(url).rstrip('/')}" in [line["message"] for line in lines(agent.log)]


@pytest.mark.process
def test_the_access_log_can_be_turned_off(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-access-log") as (agent, client):
        assert Agent(client, "1.0").send().state == "completed"
    assert "SendMessage" not in agent.log
    assert "3 skills at" in agent.log


# Invalid options


@pytest.fixture(scope="module")
def files(pair: rsa.RSAPrivateKey) -> dict[str, Any]:
    """Return invalid files, by name."""
    return {
        "bad.pem": pem(pair)[:60] + b"\n-----END PUBLIC KEY-----",
        "bad.yaml": {"keys": [{"id": "ada"}], "rules": [{"callers": ["*"]}]},
        "list.yaml": {**BASE_CONFIG, "apcore-a2a": {"auth-key": [KEY]}},
        "nowhere.yaml": {**BASE_CONFIG, "acl": {"root": "./nowhere"}},
        "private.pem": pem(pair, private=True),
        "rules.yaml": {**BASE_CONFIG, "acl": {"root": "./bad.yaml"}},
        "short.txt": b"hunter2-",
        "weak.pem": pem(rsa.generate_private_key(65537, 1024)),
    }


@pytest.fixture
def run_command(
    write: Write,
    files: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs `serve` with options; it returns the exit code and stderr."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("uvicorn.Server.run", interrupt)
        for name, content in files.items():
            write(name, content)
        code = main([*LOCAL, *arguments])
        return code, capfd.readouterr().err

    return run


BEARER, APIKEY = ("--auth-type", "bearer"), ("--auth-type", "apikey")
NO_TYPE = "needs --auth-type bearer or apikey"
MESSAGES = {
    ("--auth-type", "token"): "takes bearer or apikey",
    ("--auth-key", KEY): NO_TYPE,
    ("--auth-jwks-url", "https://a"): NO_TYPE,
    ("--auth-issuer", "https://a"): NO_TYPE,
    ("--auth-audience", "a"): NO_TYPE,
    ("--auth-algorithms", "RS256"): NO_TYPE,
    ("--auth-roles-claim", "groups"): NO_TYPE,
    BEARER: "--auth-key, --auth-jwks-url, --auth-issuer, or the variable APCORE_JWT_SECRET",
    (*BEARER, "--auth-key", ""): "needs one of --auth-key",
    (*BEARER, "--auth-key", "nope.pem"): "looks like the path of a file, but there is no such file",
    APIKEY: "needs --auth-key: a key, or a file with several",
    (
        *APIKEY,
        "--auth-key",
        "nope.yaml",
    ): "looks like the path of a file, but there is no such file",
    (
        *APIKEY,
        "--auth-key",
        KEY,
        "--auth-issuer",
        "https://a",
    ): "applies only to --auth-type bearer",
    (*APIKEY, "--auth-key", KEY, "--auth-roles-claim", "a"): "applies only to --auth-type bearer",
    ("--acl", "nope.yaml"): "there is no file nope.yaml",
    ("--acl", "extensions"): "there is no file extensions",
    ("--acl", "bad.yaml"): "bad.yaml: ",
    ("--max-runs-per-client", "0"): "must be a whole number, 1 or more",
    ("--max-runs-per-skill", "many"): "takes a whole number, not 'many'",
    ("--request-timeout", "0"): "must be greater than 0 and at most an hour",
    ("--log-format", "xml"): "takes text or json, not 'xml'",
    (*BEARER, "--auth-key", "hunter2-"): "has 8 bytes; it needs at least 32",
    (*BEARER, "--auth-key", "short.txt"): "has 8 bytes; it needs at least 32",
    (*BEARER, "--auth-key", "weak.pem"): "RSA key of 2048 to 8192 bits",
    (*BEARER, "--auth-key", "private.pem"): "give the public key, which verifies signatures",
    (*BEARER, "--auth-key", "bad.pem"): "not a public key or certificate in PEM",
    (*BEARER, "--auth-key", KEY, "--auth-jwks-url", "https://a"): "key or jwks_url, not both",
    (*BEARER, "--auth-jwks-url", "idp.example.com"): "must begin with https://",
    (*BEARER, "--auth-issuer", "idp.example.com"): "must begin with https://",
    (
        *BEARER,
        "--auth-key",
        KEY,
        "--auth-algorithms",
        "none",
    ): "algorithms must be a list of any of",
    (*BEARER, "--auth-key", KEY, "--auth-algorithms", "RS256"): "those of the key: HS256, HS384",
    (*APIKEY, "--auth-key", "bad.yaml"): "bad.yaml must have the format keys: [",
    (*APIKEY, "--auth-key", "sha256:hunter2-"): "without 64 hexadecimal digits",
    ("--rate-limit", "often"): "must look like 10/second",
    ("--skill-rate-limit", "often"): "must look like 10/second",
}
"""Invalid options, and part of the message about each."""


STORAGE = "--rate-limit-storage"
NOT_TO_IGNORE = [
    ((STORAGE, "no://a"), "storage", "without a rate the storage is not checked"),
    (
        ("--rate-limit", "1/hour", STORAGE, "no://a"),
        "rate-limit-storage",
        "the message names the rate",
    ),
    (("--rate-limit", "0/hour"), "rate", "every call is refused"),
    (("--config", "rules.yaml"), "acl.root", "it exits with 2 and apcore's message"),
    (("--config", "nowhere.yaml"), "acl.root", "it serves without rules"),
]
"""Options, part of the message, and the mistake that the test guards against."""
NOT_TO_SHOW = [
    (("--config", "list.yaml"), "auth_key", "a value that is not a string is shown"),
    ((*BEARER, "--auth-kye", KEY), "--auth-key", "a misspelled option is shown with its value"),
    (("--rate-limit", "1/hour", STORAGE, f"no://{KEY}@a"), "rate", "a URL is shown"),
]


@pytest.mark.parametrize("arguments", MESSAGES)
def test_an_invalid_option_exits_with_1_and_says_what_is_wrong(
    arguments: Any, run_command: Any
) -> None:
    code, printed = run_command(*arguments)
    assert code == 1
    assert MESSAGES[arguments] in printed.splitlines()[0]
    assert printed.startswith("apcore-a2a: ")
    assert "Traceback" not in printed
    assert "hunter2" not in printed


@pytest.mark.parametrize(
    "arguments",
    MESSAGES,
)
def test_the_message_names_the_option(arguments: Any, run_command: Any) -> None:
    name = arguments[-2].removeprefix("--").replace("-", "[-_]")
    assert re.search(name, run_command(*arguments)[1])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(arguments, name) for arguments, name, _ in [*NOT_TO_IGNORE, *NOT_TO_SHOW]],
)
def test_no_option_is_ignored_and_no_secret_is_shown(
    arguments: Any, expected: str, run_command: Any
) -> None:
    code, printed = run_command(*arguments)
    assert (code, KEY in printed) == (1, False)
    assert expected in printed


def test_a_base64_secret_with_a_leading_slash_is_not_taken_for_a_file(run_command: Any) -> None:
    assert run_command(*BEARER, "--auth-key", "/" + 43 * "a" + "=")[0] == 0
