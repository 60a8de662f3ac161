"""A walk through every view of an agent with the modules of examples/."""

from collections.abc import Iterator

from playwright.sync_api import Page, expect

from .browsing import Visit


def preset(visit: Visit, skill: str) -> Page:
    """The view of a skill, with its first example filled in."""
    page = visit.go(f"skills/{skill}")
    page.get_by_text("Fill in:").locator("..").get_by_role("button").first.click()
    return page


def send(page: Page, until: str) -> None:
    """Send what is filled in, and wait for a state."""
    page.get_by_role("button", name="Stream", exact=True).click()
    status = page.get_by_label("Result").get_by_role("status").first
    expect(status).to_have_text(until)


def walk(visit: Visit) -> Iterator[str]:
    """Show one view after the other; give the name of each, once it is there."""
    page = visit.go()
    expect(page.get_by_role("heading", level=1)).to_have_text("Test agent")
    yield "skills"
    preset(visit, "text.stats")
    yield "form"
    send(page, "completed")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    yield "finished"
    preset(visit, "files.delete")
    send(page, "input-required")
    yield "paused"
    yield from rooms(visit)
    preset(visit, "jobs.countdown")
    page.get_by_label("seconds").fill("60")
    send(page, "working")
    yield "running"
    visit.go("requests")
    expect(page.get_by_role("heading", name="Requests")).to_be_visible()
    yield "requests"
    visit.go("nowhere")
    yield "nowhere"


def rooms(visit: Visit) -> Iterator[str]:
    """The views of tasks, of which one is paused."""
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
