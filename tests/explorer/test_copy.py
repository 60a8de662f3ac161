"""Copy a request: what is copied does elsewhere what the page did."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.serving import PATIENCE, running

from . import forms
from .browsing import Visit
from .posts import Json, Wire

Begin = Callable[..., Visit]
VERSIONS = ["1.0", "0.3"]
FORMS = ["curl", "Python", "JSON"]
NASTY = "Say \"it\", 'ünd' — 日本 🎈\n$HOME `id` \\n \\ !! %s {x} *\n\ttab"
ORDER: Json = {
    "customer": {"name": "O'Neill", "address": {"city": "Köln", "zip": None}},
    "lines": [{"sku": "tea", "quantity": 2}, {"sku": "$mug", "quantity": 1}],
    "notes": [NASTY, ""],
}
ARTIFACT = {"1.0": '"artifactUpdate"', "0.3": '"kind":"artifact-update"'}
METHODS = {
    "1.0": ["SendMessage", "SendStreamingMessage", "ListTasks", "GetTask"],
    "0.3": ["message/send", "message/stream", "tasks/list", "tasks/get"],
}


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """An agent with forms of all kinds."""
    with running(forms.registry(), explorer=True, name="Test agent") as url:
        yield url


def run(*command: str) -> str:
    """What a command of somebody's shell puts out."""
    home = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=home, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def posted(agent: str, source: str, version: str) -> str:
    """What the agent answers to the JSON of a request."""
    headers = {"Content-Type": "application/json", "A2A-Version": version}
    answer = httpx.post(agent, content=source.encode(), headers=headers, trust_env=False)
    return answer.text


def done(form: str, agent: str, source: str, version: str) -> str:
    """What comes of a copied request, made in the way that it is for."""
    if form == "curl":
        return run("bash", "-c", source)
    if form == "Python":
        return run(sys.executable, "-c", source)
    return posted(agent, source, version)


def copy_box(page: Page, title: str) -> Locator:
    """What is folded away under *title*, opened."""
    page.get_by_text(title, exact=True).first.click()
    return page.get_by_role("group").filter(has=page.get_by_text(title, exact=True)).first


def copied(box: Locator, form: str, version: str) -> str:
    """What is to be copied."""
    for group, name in (("Version", version), ("Form", form)):
        choice = box.get_by_role("group", name=group).get_by_role("button", name=name, exact=True)
        choice.click()
        expect(choice).to_have_attribute("aria-pressed", "true")
    return box.locator("pre").inner_text()


def tried(visit: Visit, skill: str, data: Json, button: str, state: str = "completed") -> Page:
    """The page after it has sent *data* itself."""
    page = visit.go(f"skills/{skill}")
    page.get_by_role("textbox", name="JSON", exact=True).fill(json.dumps(data))
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("region", name="Result").get_by_role("status").first).to_have_text(
        state
    )
    return page


def follow(link: Locator) -> None:
    """Go to a task, and wait until it is there."""
    link.click()
    link.page.get_by_role("term").filter(has_text="Conversation").wait_for()


def shown(page: Page) -> Any:
    """The result that the page shows, as data."""
    artifact = page.get_by_role("region", name="Artifact result")
    artifact.get_by_role("button", name="JSON", exact=True).click()
    return json.loads(artifact.locator("pre").inner_text())


def results(form: str, output: str) -> list[Any]:
    """The data of the artifacts in what a copied request has put out."""
    if form == "Python":
        state, _, value = output.strip().partition(" ")
        assert state == "completed"
        return [ast.literal_eval(value)]
    result = json.loads(output)["result"]
    task = result.get("task", result)
    return [part["data"] for each in task["artifacts"] for part in each["parts"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_with_nested_input_gives_the_same_elsewhere(visit: Visit, version: str) -> None:
    page = tried(visit, "form.nested", ORDER, "Send and wait")
    box = copy_box(page, "Copy the request that was sent")
    for form in FORMS:
        source = copied(box, form, version)
        assert results(form, done(form, visit.agent, source, version)) == [shown(page)], form
    assert shown(page) == ORDER


@pytest.mark.parametrize("version", VERSIONS)
def test_text_full_of_what_shells_and_languages_mean_something_by_stays_what_it_is(
    visit: Visit, version: str
) -> None:
    page = visit.go("skills/form.says")
    page.get_by_role("button", name="Text", exact=True).click()
    page.get_by_role("textbox", name="Text", exact=True).fill(NASTY)
    page.get_by_role("button", name="Send and wait").click()
    page.get_by_role("region", name="Artifact result").wait_for()
    box = copy_box(page, "Copy the request that was sent")
    for form in FORMS:
        output = done(form, visit.agent, copied(box, form, version), version)
        assert results(form, output) == [{"said": NASTY}], form


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_gives_its_pieces_elsewhere(visit: Visit, version: str) -> None:
    page = tried(visit, "text.stats", {"text": "To be,\n\nor not."}, "Stream")
    expect(page.get_by_text("3 parts")).to_be_visible()
    box = copy_box(page, "Copy the request that was sent")
    for form in FORMS:
        output = done(form, visit.agent, copied(box, form, version), version)
        sign = "TaskArtifactUpdateEvent(" if form == "Python" else ARTIFACT[version]
        assert output.count(sign) == 3, form
        assert "completed" in output.lower(), form


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_about_to_be_sent_can_be_copied_before(visit: Visit, version: str) -> None:
    page = visit.go("skills/form.counts")
    wire = Wire(page)
    page.get_by_role("textbox", name="JSON", exact=True).fill('{"number": 12}')
    box = copy_box(page, "Copy this request")
    for form in FORMS:
        output = done(form, visit.agent, copied(box, form, version), version)
        assert "It is 12." in output, form
    assert wire.sent() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tasks_are_listed_elsewhere(visit: Visit, version: str) -> None:
    page = visit.go("tasks")
    tried(visit, "form.says", {"text": "hello"}, "Send and wait")
    visit.go("tasks")
    box = copy_box(page, "Copy this request")
    rows = page.get_by_role("row").filter(has_text="completed")
    rows.first.wait_for()  # all of a page come together
    completed = rows.count()
    for form in FORMS:
        output = done(form, visit.agent, copied(box, form, version), version)
        assert output.lower().count("completed") == completed, form


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_a_task_is_canceled_elsewhere(visit: Visit, form: str, version: str) -> None:
    page = tried(visit, "jobs.countdown", {"seconds": 60}, "Stream", "working")
    follow(page.get_by_role("link", name=re.compile("^Task ")))
    source = copied(copy_box(page, "Copy: cancel it"), form, version)
    assert "canceled" in done(form, visit.agent, source, version).lower()
    expect(page.get_by_role("status").filter(has_text="canceled").first).to_be_visible()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_task_is_got_elsewhere(visit: Visit, version: str) -> None:
    page = tried(visit, "form.says", {"text": "hello"}, "Stream")
    follow(page.get_by_role("link", name=re.compile("^Task ")))
    box = copy_box(page, "Copy: get this task")
    for form in FORMS:
        output = done(form, visit.agent, copied(box, form, version), version)
        assert "completed" in output.lower(), form


@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_that_is_chosen_is_the_one_that_is_spoken(visit: Visit, version: str) -> None:
    wire = Wire(visit.page)
    page = visit.go("skills/form.says")
    page.get_by_label("Protocol version").select_option(f"A2A {version}")
    page.reload()
    expect(page.get_by_label("Protocol version")).to_have_value(version)
    wire.posted.clear()
    page = tried(visit, "form.says", {"text": "hello"}, "Send and wait")
    page.get_by_role("button", name="Stream", exact=True).click()
    expect(
        page.get_by_role("region", name="Result").get_by_text('"hello"', exact=True)
    ).to_be_visible()
    visit.go("tasks")
    follow(page.get_by_role("row").nth(1).get_by_role("link").first)
    visit.go("requests")
    for method in METHODS[version]:
        expect(page.get_by_text(method, exact=True).first).to_be_visible()
    assert set(METHODS[version]) <= set(wire.methods())
    assert not set(wire.methods()) & {
        name for each in VERSIONS if each != version for name in METHODS[each]
    }


def test_the_button_puts_it_into_the_clipboard(open_visit: Begin, agent: str) -> None:
    visit = open_visit(agent, permissions=["clipboard-read", "clipboard-write"])
    box = copy_box(visit.go("skills/form.says"), "Copy this request")
    source = copied(box, "Python", "0.3")
    box.get_by_role("button", name="Copy", exact=True).click()
    expect(box.get_by_role("status")).to_have_text("Copied.")
    assert visit.page.evaluate("navigator.clipboard.readText()") == source


def test_a_clipboard_that_is_not_allowed_is_told_of(visit: Visit) -> None:
    visit.page.add_init_script(
        "navigator.clipboard.writeText = () => Promise.reject(new DOMException('no'))"
    )
    box = copy_box(visit.go("skills/form.says"), "Copy this request")
    box.get_by_role("button", name="Copy", exact=True).click()
    expect(box.get_by_role("status")).to_contain_text("select the text and copy it")


def test_the_requests_are_listed_newest_first_and_can_be_copied_again(visit: Visit) -> None:
    page = tried(visit, "form.counts", {"number": 5}, "Send and wait")
    page.get_by_role("textbox", name="JSON", exact=True).fill('{"number": "x"}')
    page.get_by_role("button", name="Send and wait", exact=True).click()
    page.get_by_role("button", name="Send it all the same").click()
    page.get_by_role("alert").wait_for()
    page.get_by_role("link", name="Requests").click()
    rows = page.get_by_role("main").get_by_role("listitem")
    expect(rows.first).to_contain_text("SendMessage")
    expect(rows.first).to_contain_text("Invalid params")
    expect(rows.nth(1)).to_contain_text("A2A 1.0")
    expect(rows.nth(1).get_by_text("Invalid")).to_have_count(0)
    box = rows.nth(1)
    box.get_by_text("Copy", exact=True).first.click()
    output = done("curl", visit.agent, copied(box, "curl", "1.0"), "1.0")
    assert results("curl", output) == [{"number": "It is 5."}]
