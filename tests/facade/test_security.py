"""The command's options for trust: who may call, what, how often, and what is told of it."""

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
from tests.server.asking import Agent
from tests.serving import running

from .processes import COMMAND, SIGNALS, Process, environment, extensions, process

LOCAL = ["serve", "--host", "127.0.0.1", "--port", "0"]
KEY = "hunter2-" * 6
"""48 bytes that must not be seen anywhere."""
EXTENDED = "/agent/authenticatedExtendedCard"
PUBLIC = "/.well-known/agent-card.json"
HEADER: dict[str, Any] = {"version": "1", "project": {"name": "Tests"}}
ALLOWED: dict[str, Any] = {"callers": ["@external"], "effect": "allow"}
TIRED = {"conditions": {"roles": ["tired"]}}
RULES = {"rules": [{**ALLOWED, "targets": ["echo"]}, {**ALLOWED, "targets": ["nap"], **TIRED}]}
Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a working directory with modules, and without configuration."""
    monkeypatch.chdir(tmp_path)
    extensions(tmp_path, "echo.py", "nap.py", "block.py")
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("APCORE_JWT_SECRET", raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file, of JSON unless it is bytes: its name."""

    def write(name: str, content: Any) -> str:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / name).write_bytes(data)
        return name

    return write


@contextmanager
def serving(
    home: Path, *flags: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[Process, httpx.Client]]:
    """A server with these flags, asked by nobody in particular; the key is in no line of it."""
    with process([*COMMAND, *LOCAL, *flags], home, variables) as found:
        with httpx.Client(base_url=found.url, trust_env=False, timeout=20) as client:
            yield found, client
        assert found.end(SIGNALS[0]) == 0
    assert KEY not in found.log


def skills(client: httpx.Client, headers: Mapping[str, str]) -> list[str]:
    """The skills on the extended card of who sends *headers*."""
    card = client.get(EXTENDED, headers=headers).raise_for_status().json()
    return [skill["id"] for skill in card["skills"]]


def check(client: httpx.Client, good: Mapping[str, str], bad: Mapping[str, str]) -> None:
    """Who sends *good* headers is let in, and nobody else is."""
    for headers in ({}, bad):
        assert client.get(EXTENDED, headers=headers).status_code == 401
    client.headers.update(good)
    assert Agent(client, "1.0").send().state == "completed"


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed(key: Any, algorithm: str = "HS256", **claims: Any) -> dict[str, str]:
    """The headers of somebody whose token is signed with *key*."""
    told = {"sub": "ada", "exp": int(time.time()) + 300, **claims}
    return bearing(jwt.encode(told, key, algorithm))


def pem(key: rsa.RSAPrivateKey, *, private: bool = False) -> bytes:
    """A key as text."""
    if private:
        kind, unlocked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(serialization.Encoding.PEM, kind, unlocked)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


@pytest.fixture(scope="module")
def pair() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


# Who may call


@pytest.mark.process
def test_the_secret_may_be_in_the_environment(tmp_path: Path) -> None:
    variables = {"APCORE_JWT_SECRET": KEY}
    flags = ("--auth-type", "bearer", "--auth-algorithms", "HS256", "--log-level", "debug")
    with serving(tmp_path, *flags, variables=variables) as (_, client):
        check(client, signed(KEY), signed(KEY, "HS384"))


@pytest.mark.process
def test_the_secret_may_be_an_option(tmp_path: Path) -> None:
    with serving(tmp_path, "--auth-type", "bearer", "--auth-key", KEY) as (_, client):
        check(client, signed(KEY), signed(KEY[::-1]))


@pytest.mark.process
def test_a_public_key_may_be_in_a_file(
    tmp_path: Path, write: Write, pair: rsa.RSAPrivateKey
) -> None:
    path = write("key.pem", pem(pair))
    with serving(tmp_path, "--auth-type", "bearer", "--auth-key", path) as (_, client):
        check(client, signed(pair, "RS256"), signed(rsa.generate_private_key(65537, 2048), "RS256"))


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    with running(issuer.app) as issuer.url:
        yield issuer


@pytest.mark.process
@pytest.mark.parametrize("secret", ["", KEY])
def test_the_keys_may_be_those_of_an_issuer(
    secret: str, tmp_path: Path, write: Write, issuer: Issuer
) -> None:
    rules, realm = write("acl.json", RULES), {"roles": "tired early"}
    flags = ["--auth-type", "bearer", "--auth-issuer", issuer.url, "--auth-audience", AUDIENCE]
    flags += ["--auth-roles-claim", "realm.roles", "--acl", rules]
    with serving(tmp_path, *flags, variables={"APCORE_JWT_SECRET": secret}) as (_, client):
        assert client.get(EXTENDED, headers=bearing(issuer.token("bob"))).status_code == 200
        assert skills(client, bearing(issuer.token("bob"))) == ["echo"]
        assert skills(client, bearing(issuer.token("ada", realm=realm))) == ["echo", "nap"]
        check(client, bearing(issuer.token("ada")), bearing(issuer.token("ada", aud="others")))


@pytest.mark.process
def test_the_keys_may_be_at_an_address(tmp_path: Path, issuer: Issuer) -> None:
    flags = ["--auth-type", "bearer", "--auth-jwks-url", f"{issuer.url}/keys"]
    with serving(tmp_path, *flags, "--auth-audience", AUDIENCE) as (_, client):
        good = issuer.token("ada", iss="https://anybody.example.com")
        check(client, bearing(good), bearing(issuer.token("ada", aud="others")))


@pytest.mark.process
@pytest.mark.smoke
def test_callers_may_have_a_key(tmp_path: Path) -> None:
    flags = ["--host", "0.0.0.0", "--auth-type", "apikey", "--auth-key", KEY]
    with serving(tmp_path, *flags) as (agent, client):
        assert client.get(EXTENDED).headers["www-authenticate"] == "ApiKey"
        check(client, {"X-API-Key": KEY}, {"X-API-Key": KEY[:-1]})
    assert "Anybody who can reach this address" not in agent.log


@pytest.mark.process
def test_callers_may_have_keys_of_their_own(tmp_path: Path, write: Write) -> None:
    owners: dict[str, Any] = {"bob": {}, "ada": {"roles": ["tired"]}}
    keys = [{"id": n, "sha256": sha256(n.encode()).hexdigest(), **m} for n, m in owners.items()]
    flags = ["--auth-key", write("keys.yaml", {"keys": keys}), "--acl", write("acl.json", RULES)]
    with serving(tmp_path, "--auth-type", "apikey", *flags) as (_, client):
        assert skills(client, {"X-API-Key": "bob"}) == ["echo"]
        assert skills(client, {"X-API-Key": "ada"}) == ["echo", "nap"]
        check(client, {"X-API-Key": "bob"}, {"X-API-Key": keys[0]["sha256"]})


@pytest.mark.process
@pytest.mark.smoke
def test_all_that_may_be_in_the_environment(tmp_path: Path, write: Write) -> None:
    variables = {"APCORE_A2A_AUTH_TYPE": "apikey", "APCORE_A2A_AUTH_KEY": KEY}
    variables |= {"APCORE_A2A_ACL": write("acl.json", RULES), "APCORE_A2A_LOG_FORMAT": "json"}
    with serving(tmp_path, "--log-level", "debug", variables=variables) as (_, client):
        assert skills(client, {"X-API-Key": KEY}) == ["echo"]
        check(client, {"X-API-Key": KEY}, {"X-API-Key": "another"})


@pytest.mark.process
@pytest.mark.parametrize("own", [True, False])
def test_all_that_may_be_in_the_config_file(own: bool, tmp_path: Path, write: Write) -> None:
    write("rules.json", RULES)
    keys = {"auth-type": "bearer", "auth-key": KEY, "access-log": False}
    rules: Any = {} if own else {"acl": {"root": "./rules.json"}}
    section = keys | ({"acl": "rules.json"} if own else {})
    path = write("config.yaml", {**HEADER, **rules, "apcore-a2a": section})
    with serving(tmp_path, "--config", path) as (agent, client):
        assert skills(client, signed(KEY, roles=["tired"])) == ["echo", "nap"]
        check(client, signed(KEY), signed(KEY[::-1]))
    assert "GET" not in agent.log


# How much, and what is told of it


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
        agent, forever = Agent(client, "1.0"), {"data": {"seconds": 60}}
        agent.start("nap", parts=[forever])
        assert "of this skill" in agent.send("nap", forever).body["error"]["message"]
        agent.start("block", parts=[{"data": {}}])
        assert "of this client" in agent.send("echo").body["error"]["message"]


@pytest.mark.process
def test_a_request_must_arrive_in_time(tmp_path: Path) -> None:
    with serving(tmp_path, "--request-timeout", "0.2") as (_, client):
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port), timeout=9) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
            assert slow.recv(100) == b""


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


@pytest.mark.process
def test_the_log_may_be_for_machines(tmp_path: Path) -> None:
    flags = ["--log-format", "json", "--auth-type", "apikey", "--auth-key", KEY]
    with serving(tmp_path, *flags) as (agent, client):
        url = client.base_url
        check(client, {"X-API-Key": KEY}, {"X-API-Key": "another"})
    asked = [line for line in lines(agent.log) if line["logger"] == "apcore_a2a.access"]
    assert [line["status"] for line in asked] == [401, 401, 200]
    told = {name: asked[-1].get(name) for name in ("method", "path", "operation", "skill")}
    assert told == {"method": "POST", "path": "/", "operation": "SendMessage", "skill": "echo"}
    assert asked[-1]["principal"] == "client"
    assert f"3 skills at {str(url).rstrip('/')}" in [line["message"] for line in lines(agent.log)]


@pytest.mark.process
def test_requests_may_be_left_out_of_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-access-log") as (agent, client):
        assert Agent(client, "1.0").send().state == "completed"
    assert "SendMessage" not in agent.log
    assert "3 skills at" in agent.log


# How it ends when that makes no sense


@pytest.fixture(scope="module")
def files(pair: rsa.RSAPrivateKey) -> dict[str, Any]:
    """What files may hold that are of no use."""
    return {
        "bad.pem": pem(pair)[:60] + b"\n-----END PUBLIC KEY-----",
        "bad.yaml": {"keys": [{"id": "ada"}], "rules": [{"callers": ["*"]}]},
        "list.yaml": {**HEADER, "apcore-a2a": {"auth-key": [KEY]}},
        "nowhere.yaml": {**HEADER, "acl": {"root": "./nowhere"}},
        "private.pem": pem(pair, private=True),
        "rules.yaml": {**HEADER, "acl": {"root": "./bad.yaml"}},
        "short.txt": b"hunter2-",
        "weak.pem": pem(rsa.generate_private_key(65537, 1024)),
    }


@pytest.fixture
def told(
    write: Write,
    files: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str]]:
    """What the command makes of options: its exit code, 0 if it would serve, and its words."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def tell(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("uvicorn.Server.run", interrupt)
        for name, content in files.items():
            write(name, content)
        code = main([*LOCAL, *arguments])
        return code, capfd.readouterr().err

    return tell


BEARER, APIKEY = ("--auth-type", "bearer"), ("--auth-type", "apikey")
NO_TYPE = "needs --auth-type bearer or apikey"
NAMED = {
    ("--auth-type", "token"): "takes bearer or apikey",
    ("--auth-key", KEY): NO_TYPE,
    ("--auth-jwks-url", "https://a"): NO_TYPE,
    ("--auth-issuer", "https://a"): NO_TYPE,
    ("--auth-audience", "a"): NO_TYPE,
    ("--auth-algorithms", "RS256"): NO_TYPE,
    ("--auth-roles-claim", "groups"): NO_TYPE,
    BEARER: "--auth-key, --auth-jwks-url, --auth-issuer, or the variable APCORE_JWT_SECRET",
    (*BEARER, "--auth-key", ""): "needs one of --auth-key",
    (*BEARER, "--auth-key", "nope.pem"): "looks like a file, and there is none",
    APIKEY: "needs --auth-key: a key, or a file with several",
    (*APIKEY, "--auth-key", "nope.yaml"): "looks like a file, and there is none",
    (*APIKEY, "--auth-key", KEY, "--auth-issuer", "https://a"): "is for --auth-type bearer",
    (*APIKEY, "--auth-key", KEY, "--auth-roles-claim", "a"): "is for --auth-type bearer",
    ("--acl", "nope.yaml"): "there is no file nope.yaml",
    ("--acl", "extensions"): "there is no file extensions",
    ("--acl", "bad.yaml"): "bad.yaml: ",
    ("--max-runs-per-client", "0"): "must be a whole number, 1 or more",
    ("--max-runs-per-skill", "many"): "takes a whole number, not 'many'",
    ("--request-timeout", "0"): "must be greater than 0, and an hour at most",
    ("--log-format", "xml"): "takes text or json, not 'xml'",
}
UNNAMED = {
    (*BEARER, "--auth-key", "hunter2-"): "has 8 bytes, and a safe one has 32 or more",
    (*BEARER, "--auth-key", "short.txt"): "has 8 bytes, and a safe one has 32 or more",
    (*BEARER, "--auth-key", "weak.pem"): "RSA with 2048 to 8192 bits",
    (*BEARER, "--auth-key", "private.pem"): "tokens are checked with the public one",
    (*BEARER, "--auth-key", "bad.pem"): "no public key or certificate in PEM",
    (*BEARER, "--auth-key", KEY, "--auth-jwks-url", "https://a"): "key or jwks_url, not both",
    (*BEARER, "--auth-jwks-url", "idp.example.com"): "must begin with https://",
    (*BEARER, "--auth-issuer", "idp.example.com"): "must begin with https://",
    (*BEARER, "--auth-key", KEY, "--auth-algorithms", "none"): "algorithms must be some of",
    (*BEARER, "--auth-key", KEY, "--auth-algorithms", "RS256"): "the key takes HS256, HS384",
    (*APIKEY, "--auth-key", "bad.yaml"): "bad.yaml must have the form keys: [",
    (*APIKEY, "--auth-key", "sha256:hunter2-"): "without 64 hexadecimal digits",
    ("--rate-limit", "often"): "must look like 10/second",
    ("--skill-rate-limit", "often"): "must look like 10/second",
}
"""What is said without the name of the option that it is about."""


STORAGE = "--rate-limit-storage"
PASSED_OVER = [
    ((STORAGE, "no://a"), "storage", "it is not looked at without a rate"),
    (("--rate-limit", "1/hour", STORAGE, "no://a"), "rate-limit-storage", "it names the rate"),
    (("--rate-limit", "0/hour"), "rate", "nobody could ever call"),
    (("--config", "rules.yaml"), "acl.root", "it ends with 2, in apcore's words"),
    (("--config", "nowhere.yaml"), "acl.root", "it serves without rules"),
]
SHOWN = [
    (("--config", "list.yaml"), "auth_key", "what is no text is shown"),
    ((*BEARER, "--auth-kye", KEY), "--auth-key", "a misspelt option is shown with its value"),
    (("--rate-limit", "1/hour", STORAGE, f"no://{KEY}@a"), "rate", "an address is shown"),
]


@pytest.mark.parametrize("arguments", NAMED | UNNAMED)
def test_what_makes_no_sense_ends_with_1_and_tells_what_would(arguments: Any, told: Any) -> None:
    code, printed = told(*arguments)
    assert code == 1
    assert (NAMED | UNNAMED)[arguments] in printed.splitlines()[0]
    assert printed.startswith("apcore-a2a: ")
    assert "Traceback" not in printed
    assert "hunter2" not in printed


@pytest.mark.parametrize(
    "arguments",
    NAMED | UNNAMED,
)
def test_it_names_the_option(arguments: Any, told: Any) -> None:
    name = arguments[-2].removeprefix("--").replace("-", "[-_]")
    assert re.search(name, told(*arguments)[1])


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(given, name) for given, name, _ in [*PASSED_OVER, *SHOWN]],
)
def test_no_option_is_passed_over_or_shown(arguments: Any, names: str, told: Any) -> None:
    code, printed = told(*arguments)
    assert (code, KEY in printed) == (1, False)
    assert names in printed


def test_a_secret_may_be_any_base64(told: Any) -> None:
    assert told(*BEARER, "--auth-key", "/" + 43 * "a" + "=")[0] == 0
