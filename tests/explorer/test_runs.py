"""The runs of a skill: their history, what survives a reload, and what a failure shows."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apcore import Context, Registry
from playwright.sync_api import Locator, Page, expect

from tests.server.inloop import ActionModule, echo
from tests.server.modules import Inputs
from tests.serving import PATIENCE, running

from .browsing import PHONE, Visit, press_run
from .fake import FakeAgent, json_response, stream_of, task_of
from .scripted import ScriptedModule

OpenVisit = Callable[..., Visit]
TRACE_IDS: list[str] = []
"""Trace ids of the calls of `broken`, in order."""


async def break_down(inputs: Inputs, context: "Context[Any]") -> Inputs:
    TRACE_IDS.append(context.trace_id)
    raise RuntimeError("hunter2")


@pytest.fixture(scope="module")
def scripted() -> ScriptedModule:
    return ScriptedModule()


@pytest.fixture(scope="module")
def agent(scripted: ScriptedModule) -> Iterator[str]:
    """Serve skills that return their input, fail, or wait for the test."""
    registry = Registry()
    registry.register("mirror", ActionModule(echo))
    registry.register("broken", ActionModule(break_down))
    registry.register("scripted", scripted)
    with running(registry, name="Test agent", explorer=True) as url:
        yield url


def json_editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="JSON", exact=True)


def open_skill(visit: Visit, skill: str) -> Page:
    """Open a skill's view, with its input as JSON."""
    page = visit.go(f"skills/{skill}")
    page.get_by_role("group", name="Send as").get_by_role("button", name="Data").click()
    return page


def result(page: Page) -> Locator:
    return page.get_by_role("region", name="Result", exact=True)


def expect_state(page: Page, state: str) -> None:
    expect(result(page).get_by_role("status").first).to_have_text(state)


def run_with(page: Page, data: Any, state: str = "completed") -> None:
    """Run the shown skill with an input, and wait for a state."""
    json_editor(page).fill(json.dumps(data))
    press_run(page)
    expect_state(page, state)


def runs(page: Page) -> Locator:
    """Return the listed earlier runs."""
    return page.get_by_role("region", name="Latest runs").get_by_role("listitem")


def test_the_last_twenty_runs_are_kept_and_shown_again(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    for number in range(22):
        run_with(page, {"n": number})
        expect(result(page)).to_contain_text(f"n: {number}")
    expect(runs(page)).to_have_count(20)
    expect(runs(page).first).to_contain_text('{"n":21}')
    expect(runs(page).last).to_contain_text('{"n":2}')
    runs(page).last.get_by_role("button", pressed=False).first.click()
    expect(result(page)).to_contain_text("n: 2")
    page.reload()
    expect(runs(page)).to_have_count(20)
    expect(result(page)).to_contain_text("n: 21")
    runs(page).nth(3).get_by_role("button", pressed=False).first.click()
    expect(result(page)).to_contain_text("n: 18")


def test_an_earlier_run_is_repeated_with_its_input(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    run_with(page, {"n": 1})
    run_with(page, {"n": 2})
    runs(page).last.get_by_role("button", name="Run again").click()
    expect(runs(page)).to_have_count(3)
    expect(result(page)).to_contain_text("n: 1")
    expect(json_editor(page)).to_have_value(json.dumps({"n": 1}, indent=2))


def test_two_runs_are_compared(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    run_with(page, {"city": "Rome", "n": 1})
    run_with(page, {"city": "Bonn", "n": 1})
    expect(result(page)).to_contain_text("Bonn")
    page.reload()
    runs(page).last.get_by_role("button", name="Compare").click()
    comparison = page.get_by_role("region", name="Comparison")
    for kind in (".removed", ".added"):
        expect(comparison.locator(kind)).to_contain_text(
            ["Rome"] * 2 if kind == ".removed" else ["Bonn"] * 2
        )
    comparison.get_by_role("button", name="Close").click()
    expect(comparison).to_have_count(0)


def test_the_earlier_of_two_compared_runs_comes_first(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    run_with(page, {"city": "Rome"})
    run_with(page, {"city": "Bonn"})
    runs(page).last.get_by_role("button", pressed=False).first.click()
    runs(page).first.get_by_role("button", name="Compare").click()
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison.locator(".removed")).to_contain_text(["Rome"] * 2)
    expect(comparison.locator(".added")).to_contain_text(["Bonn"] * 2)


def test_the_input_survives_a_reload(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    source = '{"half": "a sentence'
    json_editor(page).fill(source)
    page.reload()
    expect(json_editor(page)).to_have_value(source)
    expect(json_editor(page)).to_have_attribute("aria-invalid", "true")


def test_the_size_of_the_session_storage_is_bounded(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    run_with(page, {"text": "x" * 600_000})
    run_with(page, {"text": "y" * 600_000})
    page.reload()
    page.get_by_role("heading", name="Try it").wait_for()
    size = page.evaluate("JSON.stringify({...sessionStorage}).length")
    assert size < 2_500_000


def test_the_token_of_a_webhook_is_not_stored(open_visit: OpenVisit) -> None:
    fake = FakeAgent(GetTask=lambda params: task_of())
    fake.replies["SendStreamingMessage"] = lambda params: stream_of([{"task": task_of()}])
    with running(fake.app()) as url:
        page = open_visit(url).go("skills/work")
        page.get_by_text("Conversation and webhook").click()
        page.get_by_label("Webhook URL").fill("https://hooks.example.com/")
        page.get_by_label("Token for the webhook").fill("hunter2")
        press_run(page)
        expect_state(page, "completed")
        page.reload()
        expect_state(page, "completed")
        stored = page.evaluate("JSON.stringify({...sessionStorage})")
    assert "hooks.example.com" in stored
    assert "hunter2" not in stored


def test_a_shared_link_fills_in_the_input_but_runs_nothing(
    open_visit: OpenVisit, agent: str
) -> None:
    visit = open_visit(agent, permissions=["clipboard-read", "clipboard-write"])
    page = open_skill(visit, "mirror")
    source = '{"text": "50 % & more = ünd #?"}'
    json_editor(page).fill(source)
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    other = open_visit(agent)
    other.page.goto(link)
    expect(json_editor(other.page)).to_have_value(source)
    expect(result(other.page)).to_have_count(0)
    assert other.page.url.endswith("#/skills/mirror")


def test_the_run_button_is_disabled_until_the_run_has_ended(
    visit: Visit, scripted: ScriptedModule
) -> None:
    page = open_skill(visit, "scripted")
    press_run(page)
    stream = scripted.next_stream()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    json_editor(page).press("Control+Enter")
    stream.end()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    assert runs(page).count() == 0  # the list appears with the second run


def test_the_choice_of_how_to_run_is_remembered(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    press_run(page, "wait")
    page.reload()
    expect(page.get_by_label("How to run")).to_have_value("send")


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}], ids=["desk", "phone"])
def test_the_result_is_in_view_after_control_enter(
    open_visit: OpenVisit, agent: str, options: dict[str, Any]
) -> None:
    page = open_skill(open_visit(agent, **options), "mirror")
    json_editor(page).fill(json.dumps({"lines": list(range(60))}))
    json_editor(page).press("Control+Enter")
    expect(result(page).get_by_role("status").first).to_be_in_viewport()
    expect_state(page, "completed")


def test_a_failure_shows_its_code_and_the_ids_to_look_it_up_by(
    open_visit: OpenVisit, agent: str
) -> None:
    visit = open_visit(agent, permissions=["clipboard-read", "clipboard-write"])
    page = open_skill(visit, "broken")
    run_with(page, {"n": 1}, "failed")
    task_id = result(page).get_by_role("link", name="Task").get_attribute("title")
    facts = result(page).get_by_role("definition")
    expect(facts.nth(0)).to_have_text("-32603 ModuleExecuteError")
    expect(facts.nth(1)).to_contain_text(str(task_id))
    expect(facts.nth(2)).to_contain_text(TRACE_IDS[-1])
    expect(result(page)).to_contain_text(f"Search the log for trace_id={TRACE_IDS[-1]}")
    result(page).get_by_role("button", name="Copy trace id").click()
    expect(facts.nth(2).get_by_role("status")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == TRACE_IDS[-1]
    calls = len(TRACE_IDS)
    result(page).get_by_role("button", name="Run again").click()
    expect(runs(page)).to_have_count(2)
    expect_state(page, "failed")
    assert len(TRACE_IDS) == calls + 1


def test_a_failed_task_is_run_again_from_its_own_page(visit: Visit) -> None:
    page = open_skill(visit, "broken")
    run_with(page, {"n": 7}, "failed")
    result(page).get_by_role("link", name="Task").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    calls = len(TRACE_IDS)
    result(page).get_by_role("button", name="Run again").click()
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    expect_state(page, "failed")
    expect(runs(page).first).to_contain_text('{"n":7}')
    assert len(TRACE_IDS) == calls + 1


def test_a_task_that_the_agent_has_lost_is_no_longer_shown_as_working(
    open_visit: OpenVisit,
) -> None:
    """As after a restart of an agent without a store."""
    error = {"code": -32001, "message": "Task not found"}
    lost = {"jsonrpc": "2.0", "id": 1, "error": error}
    fake = FakeAgent()
    fake.replies["SendStreamingMessage"] = lambda params: stream_of([{"task": task_of("WORKING")}])
    with running(fake.app()) as url:
        fake.replies["SubscribeToTask"] = lambda params: json_response(lost)
        page = open_visit(url).go("skills/work")
        press_run(page)
        expect_state(page, "lost")
        expect(result(page)).to_contain_text("The agent no longer knows this task, perhaps")
        for name in ("Cancel task", "Follow task"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        fake.replies["SendStreamingMessage"] = lambda params: stream_of([{"task": task_of()}])
        result(page).get_by_role("button", name="Run again").click()
        expect_state(page, "completed")


def test_an_open_copy_panel_follows_the_chosen_version(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    code = page.get_by_role("group").filter(has_text="Copy this request").locator("pre")
    expect(code).to_contain_text('"SendStreamingMessage"')
    page.get_by_label("Protocol version").select_option("A2A 0.3")
    expect(code).to_contain_text('"message/stream"')
    page.get_by_role("group", name="Version").get_by_role("button", name="1.0").click()
    expect(code).to_contain_text('"SendStreamingMessage"')


def test_switching_between_code_and_result_loses_neither(visit: Visit) -> None:
    page = open_skill(visit, "mirror")
    beside = page.get_by_role("group", name="Beside the input")
    code = page.get_by_role("group", name="Copy this request").locator("pre")
    expect(code).to_contain_text('"SendStreamingMessage"')
    press_run(page, "wait")
    expect_state(page, "completed")
    page.get_by_role("listbox", name="Events").press("End")
    expect(code).to_have_count(0)
    beside.get_by_role("button", name="Code").click()
    expect(result(page)).to_be_hidden()
    page.get_by_role("textbox", name="JSON", exact=True).fill('{"word": "later"}')
    expect(code).to_contain_text('"word": "later"')
    beside.get_by_role("button", name="Result").click()
    expect(code).to_have_count(0)
    expect(
        page.get_by_role("listbox", name="Events").get_by_role("option", selected=True)
    ).to_be_visible()


def test_a_run_of_a_slow_task_is_followed_after_two_reloads(
    visit: Visit, scripted: ScriptedModule
) -> None:
    page = open_skill(visit, "scripted")
    press_run(page)
    stream = scripted.next_stream()
    for number in (1, 2):
        stream.send({"n": number})
        expect(page.get_by_role("listbox", name="Events")).to_contain_text(f'"n":{number}')
        page.reload()
        expect_state(page, "working")
    stream.end()
    expect_state(page, "completed")
    assert stream.ended.wait(PATIENCE)
