"""Hostile agents: their texts are shown as text, and no answer breaks the page."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from tests.server.checking_client import Json
from tests.serving import running

from .browsing import PHONE, Visit
from .fake import FakeAgent, card_of, json_response, skill_of, stream_of, task_of
from .hostile import (
    BIDI_OVERRIDE,
    CORPUS,
    EVIL,
    HostileVisit,
    artifacts,
    expect_content,
    hostile_card,
    hostile_task,
    message_of,
    paused_task,
)

OpenVisit = Callable[..., Visit]


def always(answer: Any, params: Json) -> Any:
    return answer


@pytest.fixture(scope="module")
def fake() -> FakeAgent:
    return FakeAgent()


@pytest.fixture(scope="module")
def agent(fake: FakeAgent) -> Iterator[str]:
    with running(fake.app()) as url:
        yield url


@pytest.fixture
def hostile(visit: Visit, fake: FakeAgent) -> HostileVisit:
    """Return a page of an agent with a hostile card."""
    fake.card = hostile_card()
    fake.replies = FakeAgent().replies
    return HostileVisit(visit)


def test_a_hostile_card_is_shown_as_text(hostile: HostileVisit) -> None:
    page = hostile.visit.go()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>window.ran = 1</script>")
    for text in CORPUS[:10]:
        expect(page.get_by_role("main")).to_contain_text(text)
    hostile.open_all()
    expect_content(page)
    assert hostile.harm() == []


def test_each_hostile_skill_is_shown_as_text(hostile: HostileVisit) -> None:
    page = hostile.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    for text in CORPUS:
        if "\ud800" in text:
            continue  # no URL can contain it
        hostile.go("skills", text)
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        if text.isprintable():
            expect(page.get_by_role("heading", level=1)).to_have_text(text)
        page.get_by_text("Fill in an example:").locator("..").get_by_role("button").click()
        hostile.open_all()
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        assert hostile.harm() == []


def test_a_hostile_card_fits_on_a_phone(open_visit: OpenVisit, agent: str, fake: FakeAgent) -> None:
    fake.card = hostile_card()
    hostile = HostileVisit(open_visit(agent, viewport=PHONE, is_mobile=True, has_touch=True))
    hostile.visit.go().get_by_role("heading", level=1).wait_for()
    assert hostile.harm() == []
    for text in CORPUS[-6:]:
        hostile.go("skills", text)
        hostile.open_all()
        assert hostile.harm() == []


def test_a_hostile_stream_is_shown_as_text(hostile: HostileVisit, fake: FakeAgent) -> None:
    ids = {"taskId": "task-1", "contextId": "context-1"}
    updates = [{"artifactUpdate": {**ids, "artifact": artifact}} for artifact in artifacts()]
    status = {"state": "TASK_STATE_FAILED", "message": message_of(CORPUS[0])}
    ended = {"statusUpdate": {**ids, "status": status, "metadata": {"progress": CORPUS[0]}}}
    fake.replies["SendStreamingMessage"] = lambda params: stream_of(
        [{"task": task_of("WORKING")}, *updates, ended]
    )
    page = hostile.visit.go("skills/constructor")
    page.get_by_role("button", name="Run", exact=True).click()
    result = page.get_by_label("Result")
    expect(result.get_by_text("failed").first).to_be_visible()
    expect(result).to_contain_text("<script>window.ran = 1</script>")
    hostile.open_all()
    expect_content(page)
    assert hostile.harm() == []


@pytest.mark.parametrize("kind", ["approval", "input"])
def test_hostile_questions_are_shown_as_text(
    hostile: HostileVisit, fake: FakeAgent, kind: str
) -> None:
    tasks = {text: paused_task(text, kind) for text in CORPUS}
    fake.replies |= {
        "ListTasks": lambda params: {"tasks": [*tasks.values()]},
        "GetTask": lambda params: tasks.get(params["id"], {}),
    }
    page = hostile.visit.go("inbox")
    expect(page.get_by_role("heading", name="Waiting for your").first).to_be_visible()
    hostile.open_all()
    assert hostile.harm() == []
    hostile.go("tasks", CORPUS[0])
    expect(page.get_by_role("heading", name="Waiting for your")).to_be_visible()
    hostile.open_all()
    assert hostile.harm() == []
    if kind == "approval":
        page.get_by_role("button", name="Deny…").click()
    page.get_by_role("textbox").first.fill("so be it")
    page.get_by_role("button", name="Deny" if kind == "approval" else "Reply", exact=True).click()
    expect_content(page)


def test_bidi_characters_do_not_reorder_the_arguments_to_approve(
    hostile: HostileVisit, fake: FakeAgent
) -> None:
    task = paused_task(BIDI_OVERRIDE, "approval")
    fake.replies["GetTask"] = lambda params: task
    page = hostile.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    hostile.go("tasks", BIDI_OVERRIDE)
    question = page.get_by_label("Input requested")
    expect(question.get_by_role("cell")).to_have_text(r'"report\u202etxt.exe\u2066"')
    expect(question.get_by_role("rowheader")).to_have_text(r"report\u202etxt.exe\u2066")


def test_hostile_tasks_are_shown_as_text_in_every_view(
    hostile: HostileVisit, fake: FakeAgent
) -> None:
    tasks = [hostile_task(text, artifacts=artifacts()[:3]) for text in CORPUS]
    config = [{"id": text, "url": text, "status": text, "reason": text} for text in CORPUS]
    fake.replies |= {
        "ListTasks": lambda params: {"tasks": tasks, "totalSize": 9, "nextPageToken": CORPUS[0]},
        "GetTask": lambda params: tasks[0],
        "ListTaskPushNotificationConfigs": lambda params: {"configs": config},
    }
    page = hostile.visit.go("tasks")
    expect(page.get_by_role("row")).to_have_count(len(CORPUS) + 1)
    hostile.open_all()
    assert hostile.harm() == []
    views = [("tasks", "x"), ("conversations",), ("conversations", CORPUS[2]), ("requests",)]
    for path in views:
        hostile.go(*path)
        # the first is the page's own; texts with headings may follow
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
        if path != ("requests",):
            expect(page.get_by_role("main")).to_contain_text(CORPUS[0][:8])
        hostile.open_all()
        expect_content(page)
        assert hostile.harm() == []


def hostile_error() -> Response:
    """Return an error with hostile texts and field names."""
    texts = [
        *CORPUS,
        "__errors",
        "__errors.x",
        "x.__errors",
        "__proto__.x",
        "constructor.prototype",
    ]
    fields = [{"field": text, "description": text} for text in texts]
    details = [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": CORPUS[0]},
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields},
    ]
    error = {"code": CORPUS[0], "message": " ".join(["Refused", *CORPUS[:16]]), "data": details}
    return json_response({"jsonrpc": "2.0", "id": 1, "error": error})


def test_hostile_errors_are_shown_as_text(hostile: HostileVisit, fake: FakeAgent) -> None:
    for method in ("SendStreamingMessage", "ListTasks", "GetTask"):
        fake.replies[method] = lambda params: hostile_error()
    page = hostile.visit.go("skills/constructor")
    page.get_by_role("button", name="Run", exact=True).click()
    text = f"Refused {CORPUS[0]}"  # the name of the agent has the text without the word
    for path in [("tasks",), ("tasks", "x"), ("inbox",), ("conversations", "x"), ("requests",)]:
        expect(page.get_by_role("main")).to_contain_text(text)
        assert hostile.harm() == []
        hostile.go(*path)
    expect(page.get_by_role("main")).to_contain_text(text)
    hostile.open_all()
    assert hostile.harm() == []


def test_external_links_and_images_load_nothing(hostile: HostileVisit, fake: FakeAgent) -> None:
    text = f"[web]({EVIL}/a) [mail](mailto:a@evil.example) [ftp](ftp://x) ![image]({EVIL}/i.png)"
    fake.card = card_of(skill_of(description=text), documentationUrl=f"{EVIL}/docs")
    page = hostile.visit.go()
    expect(page.get_by_role("link", name=f"{EVIL}/docs")).to_be_visible()
    hostile.go("skills", "work")
    for name in ("web", "mail"):
        link = page.get_by_role("link", name=name, exact=True)
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        expect(link).to_have_attribute("target", "_blank")
    expect(page.get_by_text("ftp", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="ftp", exact=True)).to_have_count(0)
    expect(page.get_by_role("main").get_by_role("img")).to_have_count(0)
    assert hostile.harm() == []


WRONG = {"a": None, "b": [5], "c": "x"}
MALFORMED: list[Any] = [
    HTMLResponse("<h1>Hello</h1>"),
    PlainTextResponse(""),
    Response(status_code=204),
    PlainTextResponse("data: nonsense\n\n", media_type="text/event-stream"),
    PlainTextResponse('{"jsonrpc": "2.0", "id": 1, "result": {"ta', media_type="application/json"),
    json_response(None),
    json_response([]),
    json_response({"error": "no"}),
    json_response({"error": {"code": [], "message": {}, "data": 5}}),
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


def test_malformed_answers_leave_the_page_working(hostile: HostileVisit, fake: FakeAgent) -> None:
    fake.card = card_of()
    page = hostile.visit.go("skills/work")
    for answer in MALFORMED:
        fake.replies = dict.fromkeys(METHODS, partial(always, answer))
        hostile.go("skills", "work")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_label("Result")).to_be_visible()
        for path, name in VIEWS:
            hostile.go(*path)
            heading = re.compile("Task|Work") if name == "Task" else name
            expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
            expect(page.get_by_text("Loading")).to_have_count(0)
            expect_content(page)
            if name == "Task":
                hostile.open_all()
                expect_content(page)
    assert hostile.harm() == []


CARDS: list[Any] = [
    *(HTMLResponse("<h1>Hello</h1>"), PlainTextResponse(""), Response(status_code=404)),
    *(json_response(None), json_response([]), json_response("x"), json_response(5)),
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


def test_a_malformed_card_leaves_the_page_working(hostile: HostileVisit, fake: FakeAgent) -> None:
    page = hostile.visit.page
    for card in CARDS:
        fake.card = card
        page.goto("about:blank")
        hostile.visit.go()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if isinstance(card, Response):
            expect(page.get_by_role("alert")).to_be_visible()
            expect(page.get_by_role("button", name="Try again")).to_be_visible()
        hostile.open_all()
        expect_content(page)
        assert hostile.harm() == []


PROPERTIES: dict[str, Any] = {
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


def test_skills_with_malformed_schemas_can_still_be_called(
    hostile: HostileVisit, fake: FakeAgent
) -> None:
    schemas: Json = {
        name: {"type": "object", "properties": members} for name, members in PROPERTIES.items()
    }
    schemas |= {"required": {"properties": {"a": {}}, "required": "a"}, "levels": "@deep schema"}
    details = {name: {"inputSchema": schema} for name, schema in schemas.items()}
    fake.card = card_of(*map(skill_of, schemas), details=details)
    fake.replies["SendStreamingMessage"] = lambda params: {"task": task_of()}
    page = hostile.visit.go()
    page.get_by_role("heading", level=1).wait_for()
    for name in schemas:
        hostile.go("skills", name)
        expect(page.get_by_role("heading", level=1)).to_have_text(name.title())
        page.get_by_role("textbox", name="JSON").fill('{"a": 1}')
        page.get_by_role("button", name="Run", exact=True).click()
        override = page.get_by_role("button", name="Send anyway")
        ended = page.get_by_label("Result").filter(has_text="completed")
        expect(override.or_(ended).first).to_be_visible()
        if override.is_visible():
            override.click()
        expect(ended).to_be_visible()
        hostile.open_all()
        assert hostile.harm() == []


def test_a_malformed_url_leaves_the_page_working(hostile: HostileVisit, fake: FakeAgent) -> None:
    fake.replies["ListTasks"] = lambda params: {"tasks": []}
    for view in ("tasks?after=x", "tasks/%", "skills/%E0%A4%A", "%00", "tasks?state=x"):
        page = hostile.visit.go(view)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect_content(page)


def test_tasks_are_shown_without_streaming(hostile: HostileVisit, fake: FakeAgent) -> None:
    fake.card = card_of(capabilities={"streaming": False})
    task = paused_task("Well?", "approval")
    fake.replies["GetTask"] = lambda params: task
    page = hostile.visit.go("tasks/Well%3F")
    expect(
        page.get_by_label("Input requested").get_by_role("button", name="Approve")
    ).to_be_visible()
