"""Requests with wrong verbs, paths, content types and versions."""

import gzip
import json

import pytest

from .checking_client import Agent

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")


def send_body(agent: Agent) -> bytes:
    """Return the body of a valid send."""
    params = agent.params()
    request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("send"), "params": params}
    return json.dumps(params if agent.restful else request).encode()


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "application/jsonx",
        "json",
        "*/*",
    ],
)
def test_a_content_type_other_than_json_is_not_supported(agent: Agent, media_type: str) -> None:
    """Web pages can send the first four without a preflight request (CORS)."""
    assert agent.post(send_body(agent), {"Content-Type": media_type}).code == -32005


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/a2a+json",
        "application/vnd.x+json ; v=1",
    ],
)
def test_every_content_type_of_json_is_accepted(agent: Agent, media_type: str) -> None:
    assert agent.post(send_body(agent), {"Content-Type": media_type}).state == "completed"


def test_a_missing_content_type_means_json(agent: Agent) -> None:
    path = "/message:send" if agent.restful else "/"
    answer = agent.request("POST", path, content=send_body(agent), headers=agent.headers)
    assert "content-type" not in answer.response.request.headers
    assert answer.state == "completed"


def test_a_compressed_body_is_a_parse_error(agent: Agent) -> None:
    """It is never decompressed, so a small body can't exhaust the memory."""
    packed = gzip.compress(b" " * 2**20 + send_body(agent))
    assert agent.post(packed, {"Content-Encoding": "gzip"}).code == -32700


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_json_rpc_accepts_only_post(rpc: Agent, verb: str) -> None:
    response = rpc.client.request(verb, "/", content=send_body(rpc))
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert rpc.send().state == "completed"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/index.html",
        "/message:send/x",
        "/message:shout",
        "/tasks/a/b",
        "/tasks/a:explode",
        "/.well-known/agent-card.json/x",
        "/agent",
        "/v1/x/message:send/y",
        "/..%2f..%2fetc/passwd",
        "/%00",
        "/%0d%0aSet-Cookie:x=1",
        "/%ff%fe",
        "/" + "a" * 8000,
    ],
)
@pytest.mark.rotating("rpc", "verb")
@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "DELETE"])
def test_unknown_paths_are_not_found(rpc: Agent, verb: str, path: str) -> None:
    response = rpc.client.request(verb, path)
    assert response.status_code == 404
    assert len(response.content) < 1000
    assert "set-cookie" not in response.headers
    assert "Traceback" not in response.text


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/message:send"),
        ("PUT", "/message:stream"),
        ("DELETE", "/tasks/a"),
        ("PUT", "/tasks"),
        ("GET", "/tasks/a:cancel"),
        ("PATCH", "/extendedAgentCard"),
    ],
)
def test_a_wrong_verb_on_a_rest_path_is_not_found_or_not_allowed(
    rpc: Agent, verb: str, path: str
) -> None:
    assert rpc.client.request(verb, path).status_code in {404, 405}


@pytest.mark.parametrize("path", ["/health", "/.well-known/agent-card.json"])
@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
def test_pages_are_read_only(rpc: Agent, verb: str, path: str) -> None:
    response = rpc.client.request(verb, path, content=b"x")
    assert response.status_code in {404, 405}


@pytest.mark.parametrize("version", ["2.0", "0.2", "0.1", "1.1", "10", "1", "one", "1,0", "-", "٣"])
def test_an_unknown_version_is_not_supported(agent: Agent, version: str) -> None:
    raw = version.encode()
    for answer in (
        agent.post(send_body(agent), {"A2A-Version": raw}),
        agent.post(send_body(agent), {"A2A-Version": raw, "Accept": "text/event-stream"}),
    ):
        assert answer.code == -32009


@pytest.mark.parametrize("version", ["1.0", "1.0.1", "1.0.17", ""])
def test_version_1_0_its_patch_releases_and_an_empty_version_are_accepted(
    agent: Agent, version: str
) -> None:
    assert agent.post(send_body(agent), {"A2A-Version": version}).state == "completed"


@pytest.mark.parametrize("version", ["0.3", "0.3.0", "0.3.7"])
def test_version_0_3_is_accepted_in_json_rpc_and_refused_on_the_rest_paths_of_1_0(
    agent: Agent, version: str
) -> None:
    answer = agent.post(send_body(agent), {"A2A-Version": version})
    assert answer.code == (-32009 if agent.restful else None)


@pytest.mark.parametrize("versions", [["1.0", "7.0"], ["7.0", "1.0"]])
def test_a_request_with_several_versions_is_not_supported(
    agent: Agent, versions: list[str]
) -> None:
    path = "/message:send" if agent.restful else "/"
    headers = [
        ("Content-Type", "application/json"),
        *(("A2A-Version", value) for value in versions),
    ]
    answer = agent.request("POST", path, content=send_body(agent), headers=headers)
    assert answer.code == -32009


@pytest.mark.parametrize(("version", "code"), [("1.0", None), ("1.0.1", None), ("7.0", -32009)])
@pytest.mark.parametrize("name", ["A2A-Version", "a2a-version"])
def test_the_version_may_be_a_query_parameter(
    agent: Agent, name: str, version: str, code: int | None
) -> None:
    path = f"{'/message:send' if agent.restful else '/'}?{name}={version}"
    answer = agent.request(
        "POST", path, content=send_body(agent), headers={"Content-Type": "application/json"}
    )
    assert answer.code == code


def test_the_method_decides_the_dialect_whatever_the_version_says(rpc: Agent) -> None:
    other_version = "0.3" if rpc.modern else "1.0"
    answer = rpc.post(send_body(rpc), {"A2A-Version": other_version})
    assert answer.state == "completed"
    assert ("kind" in answer.task) == (not rpc.modern)


@pytest.mark.parametrize(
    "query", ["?", "?%", "?a=%zz", "?=&&=", "?a2a-version", "?x=" + "a" * 5000]
)
def test_unknown_malformed_and_empty_query_parameters_are_ignored(agent: Agent, query: str) -> None:
    path = "/message:send" if agent.restful else "/"
    assert agent.post(send_body(agent), path=path + query).state == "completed"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost", "x", ""])
def test_a_web_page_of_another_origin_is_refused(agent: Agent, origin: str) -> None:
    path = "/message:send" if agent.restful else "/"
    response = agent.client.post(path, content=send_body(agent), headers={"Origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_errors_in_rest_have_the_matching_http_status(rest: Agent) -> None:
    statuses = {}
    for answer in (
        rest.ask("get", {"id": "unknown"}),
        rest.send("no.such"),
        rest.ask("card"),
        rest.post(b"{"),
    ):
        assert answer.error
        assert answer.error["code"] == answer.response.status_code
        statuses[answer.code] = answer.error["code"]
    assert statuses == {-32001: 404, -32601: 404, -32004: 400, -32700: 400}
