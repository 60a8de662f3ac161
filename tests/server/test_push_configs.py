"""Push configs: creating, reading, listing and deleting them, and invalid ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from apcore_a2a_server.push import PushSettings

from tests.serving import PATIENCE, running

from .checking_client import Agent, Json
from .modules import registry
from .webhooks import UNREACHABLE, Hooks, plain

BEARER = {"scheme": "Bearer", "credentials": "sesame"}
FULL: Json = {"id": "c1", "url": UNREACHABLE, "token": "t-1", "authentication": BEARER}
"""A push config with every optional member."""
MODERN = ["1.0", "REST"]
DIALECTS = ["0.3", *MODERN]


def client_of(**options: Any) -> Iterator[httpx.Client]:
    with (
        running(registry(), **options) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Yield a client of an agent in development mode."""
    yield from client_of(push_notifications=PushSettings(dev=True))


@pytest.fixture(scope="module")
def production() -> Iterator[httpx.Client]:
    """Yield a client of an agent with the default push settings."""
    yield from client_of(push_notifications=True)


@pytest.fixture
def hooks(agent: Agent) -> Hooks:
    return Hooks(agent)


@pytest.fixture
def task(agent: Agent) -> str:
    """Return the id of a task that has ended."""
    task_id: str = agent.send().task["id"]
    return task_id


# Creating, reading, listing, deleting


def test_a_push_config_is_returned_in_the_format_of_the_version(hooks: Hooks, task: str) -> None:
    expected = hooks.as_shown(task, **FULL)
    assert hooks.set(task, **FULL).result == expected
    assert hooks.get(task, "c1").result == expected
    listed = hooks.list_all(task).result
    assert listed == ({"configs": [expected]} if hooks.agent.modern else [expected])


def test_a_push_config_without_an_id_is_returned_with_a_generated_one(
    hooks: Hooks, task: str
) -> None:
    answer = hooks.set(task, url=UNREACHABLE)
    config_id = plain(answer.result)["id"]
    assert answer.result == hooks.as_shown(task, url=UNREACHABLE, id=config_id)
    assert hooks.get(task, config_id).result == answer.result


@pytest.mark.parametrize("other", DIALECTS)
def test_a_push_config_created_in_one_version_can_be_read_in_another(
    client: httpx.Client, hooks: Hooks, task: str, other: str
) -> None:
    hooks.set(task, **FULL)
    other_hooks = Hooks(Agent(client, other))
    assert other_hooks.get(task, "c1").result == other_hooks.as_shown(task, **FULL)
    assert other_hooks.delete(task, "c1").error is None
    assert hooks.of(task) == []


def test_a_task_without_push_configs_has_an_empty_list(hooks: Hooks, task: str) -> None:
    assert hooks.list_all(task).result == ({"configs": []} if hooks.agent.modern else [])


def test_one_of_several_push_configs_can_be_read_and_deleted(hooks: Hooks, task: str) -> None:
    for name in ("b", "a", "c"):
        hooks.set(task, id=name, url=f"{UNREACHABLE}/{name}")
    assert hooks.ids(task) == ["b", "a", "c"]
    assert plain(hooks.get(task, "a").result)["url"] == f"{UNREACHABLE}/a"
    hooks.delete(task, "a")
    assert hooks.ids(task) == ["b", "c"]
    assert hooks.get(task, "a").code == -32001


def test_a_push_config_belongs_to_one_task(hooks: Hooks, task: str) -> None:
    another = hooks.agent.send().task["id"]
    hooks.set(task, **FULL)
    assert hooks.of(another) == []
    assert hooks.get(another, "c1").code == -32001


def test_a_push_config_with_the_same_id_is_replaced_completely(hooks: Hooks, task: str) -> None:
    hooks.set(task, **FULL)
    hooks.set(task, id="c2", url=UNREACHABLE)
    hooks.set(task, id="c1", url=f"{UNREACHABLE}/new")
    configs = {config["id"]: config for config in hooks.of(task)}
    assert configs["c1"] == {"taskId": task, "id": "c1", "url": f"{UNREACHABLE}/new"}
    assert configs.keys() == {"c1", "c2"}


def test_push_configs_of_0_3_without_an_id_have_the_id_of_the_task(rpc_v03: Agent) -> None:
    hooks, task = Hooks(rpc_v03), rpc_v03.send().task["id"]
    hooks.set(task, url=UNREACHABLE)
    hooks.set(task, url=f"{UNREACHABLE}/new")
    assert hooks.of(task) == [{"taskId": task, "id": task, "url": f"{UNREACHABLE}/new"}]


@pytest.mark.parametrize("dialect", MODERN)
def test_push_configs_of_1_0_without_an_id_do_not_replace_each_other(
    client: httpx.Client, dialect: str
) -> None:
    agent = Agent(client, dialect)
    hooks, task = Hooks(agent), agent.send().task["id"]
    ids = [hooks.set(task, url=UNREACHABLE).result["id"] for _ in range(3)]
    assert len({*ids, task, ""}) == 5
    assert hooks.ids(task) == ids


def test_a_get_without_an_id_returns_the_first_push_config_in_0_3_and_is_refused_in_1_0(
    rpc: Agent,
) -> None:
    hooks, task = Hooks(rpc), rpc.send().task["id"]
    for name in ("b", "a"):
        hooks.set(task, id=name, url=UNREACHABLE)
    if rpc.modern:
        assert rpc.ask("push get", {"taskId": task}).fields == ["params.id"]
        assert rpc.ask("push delete", {"taskId": task}).fields == ["params.id"]
        assert hooks.ids(task) == ["b", "a"]
    else:
        assert plain(hooks.get(task).result)["id"] == "b"


def test_a_task_has_at_most_ten_push_configs(hooks: Hooks, task: str) -> None:
    for number in range(10):
        assert hooks.set(task, id=f"c{number}", url=UNREACHABLE).error is None
    assert hooks.set(task, id="c10", url=UNREACHABLE).code == -32602
    assert hooks.ids(task) == [f"c{number}" for number in range(10)]
    assert hooks.set(task, id="c9", url=f"{UNREACHABLE}/new").error is None
    hooks.delete(task, "c0")
    assert hooks.set(task, id="c10", url=UNREACHABLE).error is None
    assert len(hooks.of(task)) == 10


def test_of_many_concurrent_push_configs_ten_are_kept(hooks: Hooks, task: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        futures = [pool.submit(hooks.set, task, id=f"c{n}", url=UNREACHABLE) for n in range(20)]
        codes = [future.result().code for future in futures]
    assert sorted(codes, key=str) == [-32602] * 10 + [None] * 10
    assert {*hooks.ids(task)} == {f"c{n}" for n, code in enumerate(codes) if code is None}


FLAT = {"url": UNREACHABLE, "token": "t-1"}


@pytest.mark.parametrize(
    "form",
    [
        FLAT,
        {"pushNotificationConfig": FLAT},
        {"push_notification_config": FLAT},
        {**FLAT, "tenant": ""},
    ],
    ids=str,
)
def test_a_push_config_is_accepted_in_the_format_of_each_version_and_of_the_srs(
    agent: Agent, task: str, form: Json
) -> None:
    shown = plain(agent.ask("push set", {"taskId": task, **form}).result)
    assert shown == {"taskId": task, "id": shown["id"], **FLAT}


FORMS = [
    {"taskId": "{task}", "id": "c1"},
    {"id": "{task}", "pushNotificationConfigId": "c1"},
    {"taskId": "{task}", "pushNotificationConfigId": "c1"},
    {"task_id": "{task}", "id": "c1"},
    {"id": "{task}", "push_notification_config_id": "c1"},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_push_config_is_identified_in_the_format_of_each_version(rpc: Agent, form: Json) -> None:
    hooks, task = Hooks(rpc), rpc.send().task["id"]
    for name in ("c0", "c1"):
        hooks.set(task, id=name, url=UNREACHABLE)
    params = {name: value.format(task=task) for name, value in form.items()}
    assert plain(rpc.ask("push get", params).result)["id"] == "c1"
    assert rpc.ask("push delete", params).error is None
    assert hooks.ids(task) == ["c0"]


def test_the_task_id_next_to_the_config_takes_precedence(agent: Agent, task: str) -> None:
    another = agent.send().task["id"]
    nested = {"id": "c1", "url": UNREACHABLE, "taskId": another}
    agent.ask("push set", {"taskId": task, "pushNotificationConfig": nested})
    assert Hooks(agent).ids(another) == []
    assert Hooks(agent).ids(task) == ["c1"]


@pytest.mark.parametrize("member", ["task_id", "taskId"])
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_the_path_determines_the_task_of_a_push_config_whatever_the_request_names(
    client: httpx.Client, task: str, member: str, prefix: str
) -> None:
    path = f"{prefix}/tasks/{task}/pushNotificationConfigs"
    for some_id in (task, "another"):
        body = {member: some_id, "id": some_id, "url": UNREACHABLE}
        answer = client.post(path, json=body, params={member: some_id})
        assert answer.status_code == 200, answer.text
    rest = Hooks(Agent(client, "REST"))
    assert rest.ids(task) == [task, "another"]
    other_params = dict.fromkeys((member, "id", "pushNotificationConfigId"), task)
    assert "another" in client.get(f"{path}/another", params=other_params).text
    assert client.delete(f"{path}/another", params=other_params).status_code == 200
    assert rest.ids(task) == [task]


def test_the_task_id_alone_is_enough_as_the_srs_requires(rpc_v03: Agent) -> None:
    hooks, task = Hooks(rpc_v03), rpc_v03.send().task["id"]
    rpc_v03.ask("push set", {"taskId": task, "url": UNREACHABLE})
    for params in ({"taskId": task}, {"id": task}):
        shown = plain(rpc_v03.ask("push get", params).result)
        assert shown == {"taskId": task, "id": task, "url": UNREACHABLE}
        assert [plain(config) for config in rpc_v03.ask("push list", params).result] == [shown]
    assert rpc_v03.ask("push delete", {"taskId": task}).result is None
    assert rpc_v03.ask("push get", {"taskId": task}).code == -32001
    assert hooks.of(task) == []


def test_null_as_the_task_id_leaves_the_id_of_0_3(rpc_v03: Agent) -> None:
    params = {"id": rpc_v03.send().task["id"], "taskId": None}
    assert rpc_v03.ask("push list", params).result == []


def test_a_push_config_keeps_all_its_schemes(rpc_v03: Agent) -> None:
    hooks, task = Hooks(rpc_v03), rpc_v03.send().task["id"]
    authentication = {"schemes": ["Bearer", "Basic", "X-Own"], "credentials": "sesame"}
    hooks.set(task, id="c1", url=UNREACHABLE, authentication=authentication)
    for answer in (hooks.get(task, "c1"), rpc_v03.ask("push list", {"id": task})):
        (shown,) = [answer.result] if isinstance(answer.result, dict) else answer.result
        assert shown["pushNotificationConfig"]["authentication"] == authentication
    modern = Agent(rpc_v03.client, "1.0").ask("push get", {"taskId": task, "id": "c1"})
    assert modern.result["authentication"] == BEARER


def test_the_only_scheme_may_be_given_without_a_list(rpc_v03: Agent) -> None:
    hooks, task = Hooks(rpc_v03), rpc_v03.send().task["id"]
    authentication = {"schemes": "Bearer", "scheme": None, "credentials": "sesame"}
    hooks.set(task, id="c1", url=UNREACHABLE, authentication=authentication)
    assert plain(hooks.get(task, "c1").result)["authentication"] == BEARER


def test_a_push_config_of_1_0_may_have_only_one_scheme(rpc_v10: Agent) -> None:
    task = rpc_v10.send().task["id"]
    for scheme in ("Bearer,Basic", "Bearer Basic"):
        authentication = {"scheme": scheme, "credentials": "sesame"}
        answer = Hooks(rpc_v10).agent.ask(
            "push set", {"taskId": task, "url": UNREACHABLE, "authentication": authentication}
        )
        assert (answer.code, answer.fields) == (-32602, ["authentication.scheme"])


def test_a_deletion_has_no_result_in_0_3(rpc_v03: Agent) -> None:
    hooks, task = Hooks(rpc_v03), rpc_v03.send().task["id"]
    hooks.set(task, **FULL)
    assert hooks.delete(task, "c1").body == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert hooks.delete(task, "c1").code == -32001
    assert hooks.delete(task).code == -32001


@pytest.mark.parametrize("dialect", MODERN)
def test_repeated_deletions_have_an_empty_result_in_1_0(client: httpx.Client, dialect: str) -> None:
    agent = Agent(client, dialect)
    hooks, task = Hooks(agent), agent.send().task["id"]
    hooks.set(task, **FULL)
    answers = [hooks.delete(task, config_id) for config_id in ("c1", "c1", "never")]
    assert [answer.result for answer in answers] == [{}] * 3
    assert {answer.response.status_code for answer in answers} == {200}


def test_a_deletion_in_1_0_requires_an_id(rpc_v10: Agent) -> None:
    hooks, task = Hooks(rpc_v10), rpc_v10.send().task["id"]
    hooks.set(task, **FULL)
    answer = hooks.delete(task)
    assert (answer.code, answer.fields) == (-32602, ["params.id"])
    assert hooks.ids(task) == ["c1"]


@pytest.mark.parametrize(
    "task_id", ["unknown", "6a1c1d5e-5a0f-4c38-9e0e-000000000000", "x" * 300, "💥"]
)
def test_every_operation_on_an_unknown_task_is_refused(hooks: Hooks, task_id: str) -> None:
    answers = [
        hooks.set(task_id, **FULL),
        hooks.get(task_id, "c1"),
        hooks.list_all(task_id),
        hooks.delete(task_id, "c1"),
    ]
    assert [answer.code for answer in answers] == [-32001] * 4
    assert len({answer.response.text for answer in answers}) == 1


@pytest.mark.parametrize("value", [5, True, [], {}])
@pytest.mark.parametrize("name", ["taskId", "id"])
def test_an_id_that_is_not_a_string_is_invalid_params(rpc: Agent, name: str, value: object) -> None:
    params = {"taskId": "t", "id": "c1", name: value}
    for operation in ("push get", "push delete"):
        answer = rpc.ask(operation, params)
        assert (answer.code, answer.fields) == (-32602, [f"params.{name}"])


# Invalid push configs


def with_authentication(**authentication: Any) -> Json:
    return {"url": UNREACHABLE, "authentication": authentication}


INJECTION = "a\r\nX-Evil: 1"
INVALID_VALUES = [INJECTION, "\0", "é", "x" * 4097, 5, {}]
INVALID_SCHEMES = [INJECTION, "Bea rer", "x" * 65, "é", 5, {}]
INVALID_MEMBERS: list[tuple[str, Any]] = [
    *(("id", value) for value in (INJECTION, "a b", "x" * 257, "é", 5, ["c1"])),
    *(("token", value) for value in INVALID_VALUES),
]
INVALID: list[tuple[str, Any]] = [
    ("url", {}),
    *(
        ("url", {"url": url})
        for url in (
            "",
            "hooks.example.com/a2a",
            "//127.0.0.1/hook",
            "http:127.0.0.1",
            "http://",
            "https:///hook",
            "ftp://127.0.0.1/hook",
            "javascript:alert(1)",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1:port/",
            "http://[::1",
            "http://127.0.0.1/a b",
            f"http://127.0.0.1/{INJECTION}",
            "http://127.0.0.1\\@evil.example.com/",
            "http://ada:sesame@127.0.0.1/",
            "http://127.0.0.1/é",
            "http://127.0.0.1/\0",
            "http://127.0.0.1/" + "x" * 2048,
            5,
            [UNREACHABLE],
            {"url": UNREACHABLE},
        )
    ),
    *((name, {"url": UNREACHABLE, name: value}) for name, value in INVALID_MEMBERS),
    *(
        ("authentication.credentials", with_authentication(scheme="Bearer", credentials=value))
        for value in INVALID_VALUES
    ),
    *(
        ("authentication.scheme", with_authentication(scheme=value, credentials="x"))
        for value in INVALID_SCHEMES
    ),
    ("authentication.scheme", with_authentication(credentials="x")),
    *(
        ("authentication", {"url": UNREACHABLE, "authentication": value})
        for value in ("Bearer", 5, [BEARER])
    ),
]


def label(value: Any) -> str:
    return repr(value)[:50]


def assert_refused(hooks: Hooks, task: str, hook: Json, field: str) -> list[str]:
    """Check that no operation accepts a push config; return the error messages."""
    context = str(uuid4())
    params = hooks.send_params("echo", hook=hook, contextId=context)
    answers = [
        hooks.set(task, **hook),
        *(hooks.agent.ask(operation, params) for operation in ("send", "stream")),
    ]
    assert [answer.code for answer in answers] == [-32602] * 3
    for answer in answers:
        (refused_field,) = answer.fields
        assert refused_field.endswith(field)
    assert hooks.of(task) == []
    assert hooks.agent.ask("list", {"contextId": context}).result["tasks"] == []
    return [answer.error["message"] for answer in answers if answer.error]


@pytest.mark.parametrize(("field", "hook"), INVALID, ids=label)
def test_an_invalid_push_config_is_refused_with_its_field(
    hooks: Hooks, task: str, field: str, hook: Json
) -> None:
    if field == "authentication.scheme" and not hooks.agent.modern:
        field = "authentication.schemes"
    for message in assert_refused(hooks, task, hook, field):
        assert message.isprintable()
        assert "sesame" not in message


@pytest.mark.parametrize(
    "schemes", [5, {}, [5], [INJECTION], ["Bearer,Basic"], ["Bearer", ""], ["a"] * 11], ids=label
)
def test_invalid_schemes_of_0_3_are_refused(rpc_v03: Agent, schemes: object) -> None:
    task = rpc_v03.send().task["id"]
    hook = with_authentication(schemes=schemes)
    assert_refused(Hooks(rpc_v03), task, hook, "authentication.schemes")


LONGEST = {
    "id": "x" * 256,
    "url": "http://127.0.0.1:9/".ljust(2048, "x"),
    "token": "x" * 4096,
    "authentication": {"scheme": "x" * 64, "credentials": "x" * 4096},
}


def test_values_of_the_maximum_length_are_accepted(hooks: Hooks, task: str) -> None:
    hooks.set(task, **LONGEST)
    assert hooks.of(task) == [{"taskId": task, **LONGEST}]


REFUSED_IN_PRODUCTION = {
    "http://hooks.example.com/a2a": "Webhook URL must use HTTPS in production mode",
    "https://127.0.0.1/hook": "public",
    "https://10.0.0.1/hook": "public",
    "https://169.254.169.254/latest/meta-data": "public",
    "https://[::1]/hook": "public",
    "https://localhost/hook": "public",
    "https://93.184.215.14:25/hook": "port",
}


@pytest.mark.parametrize("url", REFUSED_IN_PRODUCTION)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_in_production_webhook_urls_must_be_https_and_public(
    production: httpx.Client, dialect: str, url: str
) -> None:
    agent = Agent(production, dialect)
    task = agent.send().task["id"]
    for message in assert_refused(Hooks(agent), task, {"url": url}, "url"):
        assert REFUSED_IN_PRODUCTION[url] in message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_in_production_an_allowed_host_may_be_private(dialect: str) -> None:
    settings, url = PushSettings(allowed_hosts=["127.0.0.1"]), "https://127.0.0.1:8443/hook"
    for client in client_of(push_notifications=settings):
        agent = Agent(client, dialect)
        hooks, task = Hooks(agent), agent.send().task["id"]
        assert plain(hooks.set(task, url=url).result)["url"] == url
