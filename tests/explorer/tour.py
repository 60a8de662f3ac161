"""A tour of every view of an agent with the modules of examples/."""

from collections.abc import Iterator

from playwright.sync_api import Page, expect

from .browsing import Visit


def open_with_example(visit: Visit, skill: str) -> Page:
    """Open a skill's view, and fill in its first example."""
    page = visit.go(f"skills/{skill}")
    page.get_by_text("Fill in an example:").locator("..").get_by_role("button").first.click()
    return page


def send(page: Page, state: str) -> None:
    """Send the form, and wait for a state."""
    page.get_by_role("button", name="Run", exact=True).click()
    status = page.get_by_label("Result").get_by_role("status").first
    expect(status).to_have_text(state)


def tour(visit: Visit) -> Iterator[str]:
    """Open one view after the other; yield the name of each once it is shown."""
    page = visit.go()
    expect(page.get_by_role("heading", level=1)).to_have_text("Test agent")
    yield "skills"
    open_with_example(visit, "text.stats")
    yield "form"
    send(page, "completed")
    page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    yield "finished"
    page.get_by_role("group", name="Beside the input").get_by_role("button", name="Code").click()
    expect(page.get_by_role("heading", name="Copy this request")).to_be_visible()
    yield "code"
    open_with_example(visit, "files.delete")
    send(page, "input-required")
    yield "paused"
    yield from task_views(visit)
    open_with_example(visit, "jobs.countdown")
    page.get_by_label("seconds").fill("60")
    send(page, "working")
    yield "running"
    visit.go("now")
    expect(page.get_by_role("img", name="Runs started")).to_be_visible()
    yield "now"
    visit.go("performance")
    page.get_by_role("button", name="Details of text.stats").click()
    expect(page.get_by_role("heading", name="Slowest")).to_be_visible()
    yield "performance"
    visit.go("webhooks")
    expect(page.get_by_role("heading", name="Webhooks", exact=True)).to_be_visible()
    yield "webhooks"
    page.keyboard.press("Control+k")
    expect(page.get_by_role("listbox", name="Commands")).to_be_visible()
    yield "palette"
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox", name="Commands")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    yield "keys"
    page.keyboard.press("Escape")
    visit.go("requests")
    expect(page.get_by_role("heading", name="Requests")).to_be_visible()
    yield "requests"
    page.get_by_text("Request and response").first.click()
    expect(page.get_by_text("HTTP 200").first).to_be_visible()
    yield "wire"
    visit.go("nowhere")
    yield "nowhere"


def task_views(visit: Visit) -> Iterator[str]:
    """Open each view of tasks, at least one of which is paused; yield the names of the views."""
    page = visit.go("inbox")
    expect(page.get_by_role("button", name="Approve").first).to_be_visible()
    yield "inbox"
    visit.go("tasks")
    page.get_by_role("row").nth(1).wait_for()
    yield "tasks"
    page.get_by_role("row", name="input-required").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    yield "task"
    visit.go("conversations")
    conversation = page.get_by_role("link", name="input-required").first
    expect(conversation).to_be_visible()
    yield "conversations"
    conversation.click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    yield "conversation"
