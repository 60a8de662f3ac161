"""Hostile agents: whatever they say is text, and whatever they answer leaves a page."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from tests.server.asking import Json
from tests.serving import running

from .browsing import PHONE, Visit
from .fake import Fake, card_of, exact, skill_of, stream_of, task_of
from .hostile import (
    CORPUS,
    EVIL,
    OVERRIDE,
    Watch,
    artifacts,
    asking,
    hostile_card,
    hostile_task,
    message_of,
    stands,
)

Begin = Callable[..., Visit]


def always(answer: Any, params: Json) -> Any:
    return answer


@pytest.fixture(scope="module")
def fake() -> Fake:
    return Fake()


@pytest.fixture(scope="module")
def agent(fake: Fake) -> Iterator[str]:
    with running(fake.app()) as url:
        yield url


@pytest.fixture
def watch(visit: Visit, fake: Fake) -> Watch:
    """Somebody who looks at an agent of which nothing good is to be expected."""
    fake.card = hostile_card()
    fake.replies = Fake().replies
    return Watch(visit)


def test_a_hostile_card_is_shown_as_text(watch: Watch) -> None:
    page = watch.visit.go()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>window.ran = 1</script>")
    for text in CORPUS[:10]:
        expect(page.get_by_role("main")).to_contain_text(text)
    watch.open_all()
    stands(page)
    assert watch.harm() == []


def test_each_hostile_skill_is_shown_as_text(watch: Watch) -> None:
    page = watch.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    for text in CORPUS:
        if "\ud800" in text:
            continue  # no address can name it
        watch.go("skills", text)
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        if text.isprintable():
            expect(page.get_by_role("heading", level=1)).to_have_text(text)
        page.get_by_text("Fill in:").locator("..").get_by_role("button").click()
        watch.open_all()
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        assert watch.harm() == []


def test_a_hostile_card_fits_on_a_phone(open_visit: Begin, agent: str, fake: Fake) -> None:
    fake.card = hostile_card()
    watch = Watch(open_visit(agent, viewport=PHONE, is_mobile=True, has_touch=True))
    watch.visit.go().get_by_role("heading", level=1).wait_for()
    assert watch.harm() == []
    for text in CORPUS[-6:]:
        watch.go("skills", text)
        watch.open_all()
        assert watch.harm() == []


def test_what_a_hostile_agent_streams_is_text(watch: Watch, fake: Fake) -> None:
    ids = {"taskId": "task-1", "contextId": "context-1"}
    updates = [{"artifactUpdate": {**ids, "artifact": each}} for each in artifacts()]
    says = {"state": "TASK_STATE_FAILED", "message": message_of(CORPUS[0])}
    ended = {"statusUpdate": {**ids, "status": says, "metadata": {"progress": CORPUS[0]}}}
    fake.replies["SendStreamingMessage"] = lambda params: stream_of(
        [{"task": task_of("WORKING")}, *updates, ended]
    )
    page = watch.visit.go("skills/constructor")
    page.get_by_role("button", name="Stream").click()
    result = page.get_by_label("Result")
    expect(result.get_by_text("failed").first).to_be_visible()
    expect(result).to_contain_text("<script>window.ran = 1</script>")
    watch.open_all()
    stands(page)
    assert watch.harm() == []


@pytest.mark.parametrize("kind", ["approval", "input"])
def test_hostile_questions_are_text(watch: Watch, fake: Fake, kind: str) -> None:
    tasks = {text: asking(text, kind) for text in CORPUS}
    fake.replies |= {
        "ListTasks": lambda params: {"tasks": [*tasks.values()]},
        "GetTask": lambda params: tasks.get(params["id"], {}),
    }
    page = watch.visit.go("inbox")
    expect(page.get_by_role("heading", name="It needs").first).to_be_visible()
    watch.open_all()
    assert watch.harm() == []
    watch.go("tasks", CORPUS[0])
    expect(page.get_by_role("heading", name="It needs")).to_be_visible()
    watch.open_all()
    assert watch.harm() == []
    page.get_by_role("textbox").first.fill("so be it")
    page.get_by_role("button", name="Approve" if kind == "approval" else "Reply").click()
    stands(page)


def test_what_is_to_be_approved_is_shown_in_the_order_it_has(watch: Watch, fake: Fake) -> None:
    task = asking(OVERRIDE, "approval")
    fake.replies["GetTask"] = lambda params: task
    page = watch.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    watch.go("tasks", OVERRIDE)
    asked = page.get_by_label("asks")
    expect(asked).to_contain_text(r'"report\u202etxt.exe\u2066"')
    expect(asked).to_contain_text(r"report\u202etxt.exe\u2066: ")


def test_hostile_tasks_are_text_in_every_view(watch: Watch, fake: Fake) -> None:
    tasks = [hostile_task(text, artifacts=artifacts()[:3]) for text in CORPUS]
    config = [{"id": text, "url": text, "status": text, "reason": text} for text in CORPUS]
    fake.replies |= {
        "ListTasks": lambda params: {"tasks": tasks, "totalSize": 9, "nextPageToken": CORPUS[0]},
        "GetTask": lambda params: tasks[0],
        "ListTaskPushNotificationConfigs": lambda params: {"configs": config},
    }
    page = watch.visit.go("tasks")
    expect(page.get_by_role("row")).to_have_count(len(CORPUS) + 1)
    watch.open_all()
    assert watch.harm() == []
    views = [("tasks", "x"), ("conversations",), ("conversations", CORPUS[2]), ("requests",)]
    for path in views:
        watch.go(*path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path != ("requests",):
            expect(page.get_by_role("main")).to_contain_text(CORPUS[0][:8])
        watch.open_all()
        stands(page)
        assert watch.harm() == []


def hostile_error() -> Response:
    """A refusal with hostile texts and names."""
    texts = [
        *CORPUS,
        "__errors",
        "__errors.x",
        "x.__errors",
        "__proto__.x",
        "constructor.prototype",
    ]
    fields = [{"field": each, "description": each} for each in texts]
    details = [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": CORPUS[0]},
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields},
    ]
    error = {"code": CORPUS[0], "message": " ".join(CORPUS[:16]), "data": details}
    return exact({"jsonrpc": "2.0", "id": 1, "error": error})


def test_hostile_errors_are_text(watch: Watch, fake: Fake) -> None:
    for method in ("SendStreamingMessage", "ListTasks", "GetTask"):
        fake.replies[method] = lambda params: hostile_error()
    page = watch.visit.go("skills/constructor")
    page.get_by_role("button", name="Stream").click()
    for path in [("tasks",), ("tasks", "x"), ("inbox",), ("conversations", "x"), ("requests",)]:
        expect(page.get_by_text("<script>window.ran = 1</script>").first).to_be_visible()
        assert watch.harm() == []
        watch.go(*path)
    assert watch.harm() == []


def test_links_lead_elsewhere_only_by_a_click(watch: Watch, fake: Fake) -> None:
    text = f"[web]({EVIL}/a) [mail](mailto:a@evil.example) [ftp](ftp://x) ![image]({EVIL}/i.png)"
    fake.card = card_of(skill_of(description=text), documentationUrl=f"{EVIL}/docs")
    page = watch.visit.go()
    expect(page.get_by_role("link", name=f"{EVIL}/docs")).to_be_visible()
    watch.go("skills", "work")
    for name in ("web", "mail"):
        link = page.get_by_role("link", name=name, exact=True)
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        expect(link).to_have_attribute("target", "_blank")
    expect(page.get_by_text("ftp")).to_be_visible()
    expect(page.get_by_role("link", name="ftp")).to_have_count(0)
    expect(page.get_by_role("main").get_by_role("img")).to_have_count(0)
    assert watch.harm() == []


WRONG = {"a": None, "b": [5], "c": "x"}
MALFORMED: list[Any] = [
    HTMLResponse("<h1>Hello</h1>"),
    PlainTextResponse(""),
    Response(status_code=204),
    PlainTextResponse("data: nonsense\n\n", media_type="text/event-stream"),
    PlainTextResponse('{"jsonrpc": "2.0", "id": 1, "result": {"ta', media_type="application/json"),
    exact(None),
    exact([]),
    exact({"error": "no"}),
    exact({"error": {"code": [], "message": {}, "data": 5}}),
    *(None, [], 5, "x", True, {}, [None], {"task": None}, {"message": 5}, {"statusUpdate": []}),
    {"tasks": None, "configs": None, "nextPageToken": 5, "totalSize": "12"},
    {"tasks": [None, 5, "x", [], {}, {"id": 5, "contextId": None, "status": []}]},
    {"task": {"id": {}, "status": {"state": 5, "message": {"parts": "x"}}, "artifacts": {"a": 1}}},
    {"task": {"id": "1", "artifacts": [{"parts": [None, 5, {}, {"text": 5}, {"raw": {}}]}]}},
    {"task": task_of(artifacts=[{"artifactId": 5, "name": [], "parts": [{"data": "@deep"}]}])},
    {"task": task_of("INPUT_REQUIRED", history=[{"parts": [{"data": "@deep"}, {"text": None}]}])},
    {"artifactUpdate": {"artifact": {"parts": [{"data": "@deep"}]}, "append": "yes", **WRONG}},
    {"statusUpdate": {"status": {"state": "x", "message": {"parts": [WRONG], "role": 5}}}},
]
METHODS = ["SendStreamingMessage", "SendMessage", "GetTask", "ListTasks", "SubscribeToTask"]
METHODS += ["ListTaskPushNotificationConfigs"]


VIEWS = [
    (("tasks",), "Tasks"),
    (("tasks", "x"), "Task"),
    (("inbox",), "Inbox"),
    (("conversations", "x"), "Conversation"),
]


def test_malformed_answers_leave_a_page_that_tells(watch: Watch, fake: Fake) -> None:
    fake.card = card_of()
    page = watch.visit.go("skills/work")
    for answer in MALFORMED:
        fake.replies = dict.fromkeys(METHODS, partial(always, answer))
        watch.go("skills", "work")
        page.get_by_role("button", name="Stream").click()
        expect(page.get_by_label("Result")).to_be_visible()
        for path, name in VIEWS:
            watch.go(*path)
            expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
            expect(page.get_by_text("Asking for")).to_have_count(0)
            stands(page)
            if name == "Task":
                watch.open_all()
                stands(page)
    assert watch.harm() == []


CARDS: list[Any] = [
    *(HTMLResponse("<h1>Hello</h1>"), PlainTextResponse(""), Response(status_code=404)),
    *(exact(None), exact([]), exact("x"), exact(5)),
    {},
    dict.fromkeys(card_of(), 5),
    dict.fromkeys(card_of(), "x"),
    dict.fromkeys(card_of(), None),
    {name: [None] for name in card_of()},
    dict.fromkeys(card_of(), "@deep"),
    card_of(
        capabilities={"extensions": "x", "streaming": "yes"}, securitySchemes=[5], security=[5]
    ),
    card_of(securitySchemes={"a": None, "b": {"type": 5}, "c": {"apiKeySecurityScheme": {}}}),
    {
        **card_of(),
        "skills": [None, 5, {}, {"id": 5, "name": {}}, {"id": "x", "tags": [5], "examples": 5}],
    },
]


def test_a_malformed_card_leaves_a_page_that_tells(watch: Watch, fake: Fake) -> None:
    page = watch.visit.page
    for card in CARDS:
        fake.card = card
        page.goto("about:blank")
        watch.visit.go()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if isinstance(card, Response):
            expect(page.get_by_role("alert")).to_be_visible()
            expect(page.get_by_role("button", name="Try again")).to_be_visible()
        watch.open_all()
        stands(page)
        assert watch.harm() == []


SCHEMAS: dict[str, Any] = {
    "null": {"a": None, "b": 5, "c": "x", "d": []},
    "types": {"a": {"type": 5}, "b": {"type": "nothing"}, "c": {"type": ["string", 5]}},
    "enums": {"a": {"enum": "x"}, "b": {"enum": []}, "c": {"enum": [None, {}, []]}},
    "lists": {"a": {"type": "array", "items": 5}, "b": {"type": "array", "items": [None]}},
    "choices": {"a": {"oneOf": 5}, "b": {"anyOf": []}, "c": {"allOf": [None]}},
    "patterns": {"a": {"type": "string", "pattern": "("}, "b": {"type": "string", "format": 5}},
    "numbers": {"a": {"type": "integer", "minimum": "x", "multipleOf": 0, "default": "x"}},
    "itself": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties/b"}},
    "nowhere": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": 5}},
    "elsewhere": {"a": {"$ref": f"{EVIL}/schema.json"}, "$ref": f"{EVIL}/schema.json"},
    "conditions": {"a": {"if": 5, "then": "x", "dependentSchemas": 5, "dependencies": {"a": 5}}},
    "deep": "@deep",
    "nested": {"a": {"type": "object", "properties": {"b": {"properties": "@deep"}}}},
}


def test_malformed_schemas_leave_a_way_to_send(watch: Watch, fake: Fake) -> None:
    schemas: Json = {name: {"type": "object", "properties": s} for name, s in SCHEMAS.items()}
    schemas |= {"required": {"properties": {"a": {}}, "required": "a"}, "levels": "@deep schema"}
    details = {name: {"inputSchema": schema} for name, schema in schemas.items()}
    fake.card = card_of(*map(skill_of, schemas), details=details)
    fake.replies["SendStreamingMessage"] = lambda params: {"task": task_of()}
    page = watch.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    for name in schemas:
        watch.go("skills", name)
        expect(page.get_by_role("heading", level=1)).to_have_text(name.title())
        page.get_by_role("textbox", name="JSON").fill('{"a": 1}')
        page.get_by_role("button", name="Stream").click()
        same = page.get_by_role("button", name="all the same")
        ended = page.get_by_label("Result").filter(has_text="completed")
        expect(same.or_(ended).first).to_be_visible()
        if same.is_visible():
            same.click()
        expect(ended).to_be_visible()
        watch.open_all()
        assert watch.harm() == []


def test_a_malformed_address_leaves_a_page(watch: Watch, fake: Fake) -> None:
    fake.replies["ListTasks"] = lambda params: {"tasks": []}
    for view in ("tasks?after=x", "tasks/%", "skills/%E0%A4%A", "%00", "tasks?state=x"):
        page = watch.visit.go(view)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        stands(page)


def test_an_agent_that_does_not_stream_shows_its_tasks_all_the_same(
    watch: Watch, fake: Fake
) -> None:
    fake.card = card_of(capabilities={"streaming": False})
    task = asking("Well?", "approval")
    fake.replies["GetTask"] = lambda params: task
    page = watch.visit.go("tasks/Well%3F")
    expect(page.get_by_label("asks").get_by_role("button", name="Approve")).to_be_visible()
