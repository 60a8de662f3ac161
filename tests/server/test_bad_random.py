"""Random requests: every one gets a proper response."""

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .checking_client import METHODS, Agent, Answer

few_examples = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

INTEGERS = st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63, 10**400]) | st.integers()
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(max_size=20)
NAMES = st.sampled_from(["id", "kind", "text", "data", "file", "parts", "skillId", "metadata"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
OPERATIONS = st.sampled_from(sorted(METHODS))


def check_no_server_error(answer: Answer) -> None:
    """Check that the response is not a server error."""
    assert answer.response.status_code not in range(500, 600)
    assert answer.code != -32603


def locations(value: Any) -> list[tuple[Any, Any]]:
    """Return the container of each value inside *value*, and the name or index in it."""
    if isinstance(value, dict | list):
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        return [(value, key) for key, _ in items] + [p for _, v in items for p in locations(v)]
    return []


def request(agent: Agent, operation: str, params: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": agent.method(operation), "params": params}


@few_examples
@given(body=st.binary(max_size=200))
def test_random_bytes_are_answered(agent: Agent, body: bytes) -> None:
    check_no_server_error(agent.post(body))


@few_examples
@given(value=VALUES)
def test_random_json_is_answered(agent: Agent, value: Any) -> None:
    check_no_server_error(agent.post(json.dumps(value).encode()))


@few_examples
@given(operation=OPERATIONS, params=VALUES)
def test_random_params_are_answered(rpc: Agent, operation: str, params: Any) -> None:
    check_no_server_error(rpc.post(json.dumps(request(rpc, operation, params)).encode()))


@settings(few_examples, max_examples=60)
@given(
    data=st.data(),
    operation=st.sampled_from(["send", "stream"]),
    skill=st.sampled_from(["echo", "mirror", "anything", "order.total"]),
)
def test_a_randomly_changed_send_is_answered(
    agent: Agent, data: st.DataObject, operation: str, skill: str
) -> None:
    params = agent.params(
        skill,
        agent.part(data={"text": "hello", "customer": {"text": "x"}, "items": []}),
        agent.part(text="hello"),
        agent.part(raw="aGVsbG8="),
        contextId="c1",
        metadata={"skillId": skill, "note": [1]},
        extensions=["https://example.com/x"],
        referenceTaskIds=["t1"],
    )
    params["configuration"] = {"historyLength": 1, "acceptedOutputModes": ["text/plain"]}
    request_body = params if agent.restful else request(agent, operation, params)
    for _ in range(data.draw(st.integers(1, 3))):
        container, name = data.draw(st.sampled_from(locations(request_body)))
        if data.draw(st.booleans()) or not isinstance(container, dict):
            container[name] = data.draw(VALUES)
        else:
            del container[name]
        if not locations(request_body):
            break
    path = ("/message:stream" if operation == "stream" else "/message:send") * agent.restful
    check_no_server_error(agent.post(json.dumps(request_body).encode(), path=path))


@few_examples
@given(value=st.text(max_size=60), name=NAMES | st.sampled_from(["pageSize", "status"]))
@pytest.mark.parametrize("path", ["/tasks", "/tasks/x", "/extendedAgentCard"])
def test_random_queries_are_answered(
    client: httpx.Client, path: str, value: str, name: str
) -> None:
    check_no_server_error(
        Agent(client, "REST").request("GET", f"{path}?{urlencode({name: value})}")
    )
