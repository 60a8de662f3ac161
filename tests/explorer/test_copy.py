"""Copied requests do the same as the requests that the page sends."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.serving import PATIENCE, running

from . import forms
from .browsing import Visit, press_run
from .fake import FakeAgent, card_of, json_response, stream_of, task_of
from .posted_requests import Json, PostedRequests

OpenVisit = Callable[..., Visit]
VERSIONS = ["1.0", "0.3"]
FORMATS = ["curl", "Python", "JavaScript", "JSON"]
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
SPECIAL_CHARACTERS = "Say \"it\", 'ünd' — 日本 🎈\n$HOME `id` \\n \\ !! %s {x} *\n\ttab"
ORDER: Json = {
    "customer": {"name": "O'Neill", "address": {"city": "Köln", "zip": None}},
    "lines": [{"sku": "tea", "quantity": 2}, {"sku": "$mug", "quantity": 1}],
    "notes": [SPECIAL_CHARACTERS, ""],
}
ARTIFACT_MARKERS = {"1.0": '"artifactUpdate"', "0.3": '"kind":"artifact-update"'}
METHODS = {
    "1.0": ["SendMessage", "SendStreamingMessage", "ListTasks", "GetTask"],
    "0.3": ["message/send", "message/stream", "tasks/list", "tasks/get"],
}


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve skills with every kind of form."""
    with running(forms.registry(), explorer=True, name="Test agent") as url:
        yield url


def run(*command: str) -> str:
    """Run a command with PATH and HOME alone in its environment; return its output."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def post(agent: str, source: str, version: str) -> str:
    """Post the JSON of a request to the agent; return the response's body."""
    headers = {"Content-Type": "application/json", "A2A-Version": version}
    answer = httpx.post(agent, content=source.encode(), headers=headers, trust_env=False)
    return answer.text


def run_copied(fmt: str, agent: str, source: str, version: str) -> str:
    """Run a copied request by curl, Python or Node.js, or post its JSON; return the output."""
    if fmt == "curl":
        return run("bash", "-c", source)
    if fmt == "Python":
        return run(sys.executable, "-c", source)
    if fmt == "JavaScript":
        return run("node", "--input-type=module", "-e", source)
    return post(agent, source, version)


def open_copy_box(page: Page, title: str) -> Locator:
    """Open the details with this title, if they are closed."""
    box = page.get_by_role("group").filter(has=page.get_by_text(title, exact=True)).first
    if box.get_attribute("open") is None:
        page.get_by_text(title, exact=True).first.click()
    return box


def copied_text(box: Locator, fmt: str, version: str) -> str:
    """Choose a format and a version; return the text to copy."""
    for group, name in (("Version", version), ("Format", fmt)):
        choice = box.get_by_role("group", name=group).get_by_role("button", name=name, exact=True)
        choice.click()
        expect(choice).to_have_attribute("aria-pressed", "true")
    return box.locator("pre").inner_text()


def send_input(visit: Visit, skill: str, data: Json, mode: str, state: str = "completed") -> Page:
    """Have the page send *data*, and wait for a state."""
    page = visit.go(f"skills/{skill}")
    page.get_by_role("textbox", name="JSON", exact=True).fill(json.dumps(data))
    press_run(page, mode)
    expect(page.get_by_role("region", name="Result").get_by_role("status").first).to_have_text(
        state
    )
    return page


def follow(link: Locator) -> None:
    """Follow a link to a task, and wait until the task is shown."""
    link.click()
    link.page.get_by_role("term").filter(has_text="Conversation").wait_for()


def shown_result(page: Page) -> Any:
    """Return the result that the page shows, as data."""
    artifact = page.get_by_role("region", name="Artifact result")
    artifact.get_by_role("button", name="JSON", exact=True).click()
    return json.loads(artifact.locator("pre").inner_text())


def results(fmt: str, output: str) -> list[Any]:
    """Return the data of the artifacts in the output of a copied request."""
    if fmt == "Python":
        state, _, value = output.strip().partition(" ")
        assert state == "completed"
        return [ast.literal_eval(value)]
    result = json.loads(output)
    result = result if fmt == "JavaScript" else result["result"]
    task = result.get("task", result)
    return [part["data"] for artifact in task["artifacts"] for part in artifact["parts"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copied_call_with_nested_input_returns_the_same_result(
    visit: Visit, version: str
) -> None:
    page = send_input(visit, "form.nested", ORDER, "wait")
    box = open_copy_box(page, "Copy the sent request")
    for fmt in FORMATS:
        source = copied_text(box, fmt, version)
        assert results(fmt, run_copied(fmt, visit.agent, source, version)) == [
            shown_result(page)
        ], fmt
    assert shown_result(page) == ORDER


@pytest.mark.parametrize("version", VERSIONS)
def test_special_characters_in_text_survive_copying(visit: Visit, version: str) -> None:
    page = visit.go("skills/form.says")
    page.get_by_role("button", name="Text", exact=True).click()
    page.get_by_role("textbox", name="Text", exact=True).fill(SPECIAL_CHARACTERS)
    press_run(page, "wait")
    page.get_by_role("region", name="Artifact result").wait_for()
    box = open_copy_box(page, "Copy the sent request")
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, version), version)
        assert results(fmt, output) == [{"said": SPECIAL_CHARACTERS}], fmt


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copied_stream_yields_every_chunk(visit: Visit, version: str) -> None:
    page = send_input(visit, "text.stats", {"text": "To be,\n\nor not."}, "stream")
    expect(page.get_by_text("3 parts")).to_be_visible()
    box = open_copy_box(page, "Copy the sent request")
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, version), version)
        marker = "TaskArtifactUpdateEvent(" if fmt == "Python" else ARTIFACT_MARKERS[version]
        assert output.count(marker) == 3, fmt
        assert "completed" in output.lower(), fmt


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_can_be_copied_before_it_is_sent(visit: Visit, version: str) -> None:
    page = visit.go("skills/form.digits")
    posted = PostedRequests(page)
    page.get_by_role("textbox", name="JSON", exact=True).fill('{"number": 12}')
    box = open_copy_box(page, "Copy this request")
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, version), version)
        assert "It is 12." in output, fmt
    assert posted.message_params() == []


def test_integers_beyond_double_precision_survive_copying(visit: Visit) -> None:
    number = 2**80 + 1
    page = send_input(visit, "form.digits", {"number": number}, "wait")
    box = open_copy_box(page, "Copy the sent request")
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, "1.0"), "1.0")
        assert f"It is {number}." in output, fmt


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copied_list_request_lists_the_same_tasks(visit: Visit, version: str) -> None:
    page = visit.go("tasks")
    send_input(visit, "form.says", {"text": "hello"}, "wait")
    visit.go("tasks")
    box = open_copy_box(page, "Copy this request")
    rows = page.get_by_role("row").filter(has_text="completed")
    rows.first.wait_for()  # the rows of a page appear together
    completed = rows.count()
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, version), version)
        assert output.lower().count("completed") == completed, fmt


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_copied_cancel_request_cancels_the_task(visit: Visit, fmt: str, version: str) -> None:
    page = send_input(visit, "jobs.countdown", {"seconds": 60}, "stream", "working")
    follow(page.get_by_role("link", name=re.compile("^Task ")))
    source = copied_text(open_copy_box(page, "Copy request: cancel task"), fmt, version)
    assert "canceled" in run_copied(fmt, visit.agent, source, version).lower()
    expect(page.get_by_role("status").filter(has_text="canceled").first).to_be_visible()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copied_get_request_gets_the_task(visit: Visit, version: str) -> None:
    page = send_input(visit, "form.says", {"text": "hello"}, "stream")
    follow(page.get_by_role("link", name=re.compile("^Task ")))
    box = open_copy_box(page, "Copy request: get task")
    for fmt in FORMATS:
        output = run_copied(fmt, visit.agent, copied_text(box, fmt, version), version)
        assert "completed" in output.lower(), fmt


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_uses_the_chosen_protocol_version(visit: Visit, version: str) -> None:
    posted = PostedRequests(visit.page)
    page = visit.go("skills/form.says")
    page.get_by_label("Protocol version").select_option(f"A2A {version}")
    page.reload()
    expect(page.get_by_label("Protocol version")).to_have_value(version)
    posted.requests.clear()
    page = send_input(visit, "form.says", {"text": "hello"}, "wait")
    press_run(page, "stream")
    expect(
        page.get_by_role("region", name="Result").get_by_text('"hello"', exact=True)
    ).to_be_visible()
    visit.go("tasks")
    follow(page.get_by_role("row").nth(1).get_by_role("link").first)
    visit.go("requests")
    for method in METHODS[version]:
        expect(page.get_by_text(method, exact=True).first).to_be_visible()
    assert set(METHODS[version]) <= set(posted.methods())
    assert not set(posted.methods()) & {
        name for other in VERSIONS if other != version for name in METHODS[other]
    }


def test_the_copy_button_writes_to_the_clipboard(open_visit: OpenVisit, agent: str) -> None:
    visit = open_visit(agent, permissions=["clipboard-read", "clipboard-write"])
    box = open_copy_box(visit.go("skills/form.says"), "Copy this request")
    source = copied_text(box, "Python", "0.3")
    box.get_by_role("button", name="Copy", exact=True).click()
    expect(box.get_by_role("status")).to_have_text("Copied.")
    assert visit.page.evaluate("navigator.clipboard.readText()") == source


def test_a_refused_clipboard_is_reported(visit: Visit) -> None:
    visit.page.add_init_script(
        "navigator.clipboard.writeText = () => Promise.reject(new DOMException('no'))"
    )
    box = open_copy_box(visit.go("skills/form.says"), "Copy this request")
    box.get_by_role("button", name="Copy", exact=True).click()
    expect(box.get_by_role("status")).to_contain_text("Select the text and copy it")


def test_requests_are_listed_newest_first_and_can_be_copied(visit: Visit) -> None:
    page = send_input(visit, "form.digits", {"number": 5}, "wait")
    page.get_by_role("textbox", name="JSON", exact=True).fill('{"number": "x"}')
    press_run(page, "wait")
    page.get_by_role("button", name="Send anyway").click()
    page.get_by_role("alert").wait_for()
    page.get_by_role("link", name="Requests").click()
    rows = page.get_by_role("main").get_by_role("listitem")
    expect(rows.first).to_contain_text("SendMessage")
    expect(rows.first).to_contain_text("Invalid params")
    expect(rows.nth(1)).to_contain_text("A2A 1.0")
    expect(rows.nth(1).get_by_text("Invalid")).to_have_count(0)
    box = rows.nth(1)
    box.get_by_text("Copy this request", exact=True).first.click()
    output = run_copied("curl", visit.agent, copied_text(box, "curl", "1.0"), "1.0")
    assert results("curl", output) == [{"number": "It is 5."}]


def test_requests_show_what_was_sent_and_received(visit: Visit) -> None:
    send_input(visit, "form.says", {"text": "hello"}, "stream")
    page = visit.go("requests")
    row = page.get_by_role("main").get_by_role("listitem").filter(has_text="SendStreamingMessage")
    expect(row).to_contain_text("200")
    row.get_by_text("Request and response").click()
    for part in ("HTTP 200", "content-type: text/event-stream", "id: 1", '"statusUpdate"'):
        expect(row.locator(".wire")).to_contain_text(part)
    row.get_by_role("button", name="Request", exact=True).click()
    for part in ("A2A-Version: 1.0", "traceparent: 00-", '"method": "SendStreamingMessage"'):
        expect(row.locator(".wire")).to_contain_text(part)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_and_responses_are_shown_as_valid(visit: Visit, version: str) -> None:
    page = visit.go("skills/form.says")
    page.get_by_label("Protocol version").select_option(f"A2A {version}")
    send_input(visit, "form.says", {"text": "hello"}, "stream")
    send_input(visit, "form.says", {"text": "hello"}, "wait")
    follow(page.get_by_role("link", name=re.compile("^Task ")))
    visit.go("requests")
    for method in METHODS[version]:
        row = page.get_by_role("listitem").filter(has=page.get_by_text(method, exact=True)).first
        is_defined = method != "tasks/list"  # A2A 0.3 does not define this method
        expect(row.get_by_text(f"valid A2A {version}")).to_have_count(int(is_defined))
    expect(page.get_by_text("mismatch")).to_have_count(0)


def test_mismatches_with_the_protocol_are_shown_with_their_paths(open_visit: OpenVisit) -> None:
    fake = FakeAgent()
    task = {**task_of(), "status": {"state": "completed"}, "history": [{"role": "ROLE_USER"}]}
    frames = [{"task": task_of("WORKING")}, {"task": task}]
    fake.replies["SendStreamingMessage"] = lambda params: stream_of(frames)
    with running(fake.app()) as url:
        visit = open_visit(url)
        page = visit.go("skills/work")
        press_run(page, "stream")
        page.get_by_role("region", name="Result").get_by_text("completed").first.wait_for()
        visit.go("requests")
        row = page.get_by_role("listitem").filter(has_text="SendStreamingMessage")
        expect(row).to_contain_text("3 mismatches")
        row.get_by_text("Request and response").click()
        errors = row.locator(".errors").get_by_role("listitem")
        paths = ["task.history[0].messageId: is missing", "task.history[0].parts: is missing"]
        for index, path in enumerate(paths):
            expect(errors.nth(index)).to_have_text(f"frame 2: result.{path}")
        expect(errors.nth(2)).to_contain_text(
            "frame 2: result.task.status.state: one of TASK_STATE"
        )
        row.get_by_role("button", name="Request", exact=True).click()
        expect(errors).to_have_count(0)
        assert visit.accessibility_violations() == []


def test_members_that_the_protocol_does_not_know_are_marked(open_visit: OpenVisit) -> None:
    card = {**card_of(), "supportedInterfaces": [], "colour": "red", "skills": [{"id": "work"}]}
    fake = FakeAgent(card)
    fake.replies["SendMessage"] = lambda params: {"task": {**task_of(), "kind": "task"}}
    with running(fake.app()) as url:
        visit = open_visit(url)
        press_run(visit.go("skills/work"), "wait")
        visit.page.get_by_role("region", name="Result").get_by_text("completed").first.wait_for()
        page = visit.go("requests")
        for name, label, path in (
            ("SendMessage", "valid A2A 1.0", "result.task.kind"),
            ("agent-card.json", "3 mismatches", "card.colour"),
        ):
            row = page.get_by_role("listitem").filter(has=page.get_by_text(name))
            expect(row).to_contain_text(label)
            expect(row).to_contain_text("1 unknown member")
            row.get_by_text("Request and response").click()
            expect(row.locator(".unknown").get_by_role("listitem")).to_have_text(path)
        errors = row.locator(".failure").get_by_role("listitem")
        expect(errors.first).to_have_text("1.0: card.skills[0].description: is missing")
        assert visit.accessibility_violations() == []


def test_the_card_of_the_agent_is_valid_in_both_versions(visit: Visit) -> None:
    page = visit.go("requests")
    row = page.get_by_role("listitem").filter(has_text="agent-card.json")
    expect(row).to_contain_text("valid A2A 1.0 and 0.3")
    row.get_by_text("Request and response").click()
    # a member that this project adds to skills, for their annotations
    added = re.compile(r"card\.skills\[\d+\]\.extensions")
    expect(
        row.locator(".unknown").get_by_role("listitem").filter(has_not_text=added)
    ).to_have_count(0)
    expect(row.locator(".wire")).to_contain_text('"capabilities"')
    row.get_by_role("button", name="Request", exact=True).click()
    expect(row.locator(".wire")).to_contain_text("GET")


def test_a_card_that_is_no_object_is_not_valid(open_visit: OpenVisit) -> None:
    fake = FakeAgent(json_response([]))
    with running(fake.app()) as url:
        page = open_visit(url).go("requests")
        page.get_by_role("button", name="Try again").wait_for()
        fake.card = card_of()
        page.get_by_role("button", name="Try again").click()
        row = page.get_by_role("listitem").filter(has_text="is not a JSON object")
        row.get_by_text("Request and response").click()
        expect(row.locator(".failure")).to_contain_text("Not valid A2A 1.0:")
