"""See the agent: what its card says, for people."""

from playwright.sync_api import expect

from .browsing import Visit


def test_the_skills_are_shown_with_what_stands_out(visit: Visit) -> None:
    page = visit.go()
    expect(page).to_have_title("Test agent · A2A explorer")
    expect(page.get_by_text("Files Delete")).to_be_visible()
    expect(page.get_by_text("destructive").first).to_be_visible()
    expect(page.get_by_text("needs approval").first).to_be_visible()


def test_nothing_serious_is_in_the_way_of_anybody(visit: Visit) -> None:
    visit.go("skills/text.stats").get_by_role("heading", name="Try it").wait_for()
    assert visit.axe() == []
