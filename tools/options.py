"""Write the tables of `docs/options.md`: `python -m tools.options`."""

from pathlib import Path

from apcore_a2a.command.options import DECLARED, AuthOptions, CommandOptions, group_by_section
from apcore_a2a_server.app.options import Limits
from apcore_a2a_server.fields import Option, options_of
from apcore_a2a_server.push import PushSettings

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
BEGIN, END = "<!-- begin: made by `python -m tools.options` -->", "<!-- end -->"


def page() -> str:
    """Return the page with its tables generated again."""
    tables = "\n".join(_table(title, options) for title, options in group_by_section(DECLARED))
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n\n{tables}\n{text[end:]}"


def _table(title: str, options: list[Option]) -> str:
    rows = [f"## {title}", "", "| Python | shell | default | |", "|---|---|---|---|"]
    rows += map(_row, options)
    return "\n".join([*rows, ""])


def _row(option: Option) -> str:
    shell = f"`{option.flag}`" if option.kind else ""
    default, is_value = option.default_text, not option.otherwise
    default = f"`{default}`" if default and is_value else default
    return f"| {_keyword(option)} | {shell} | {default} | {option.help} |"


def _keyword(option: Option) -> str:
    """Return how to set the option in Python; "" if only the command has this option."""
    if option in options_of(Limits):
        return f"`limits=Limits({option.field}=…)`"
    if option in options_of(PushSettings, "push_"):
        return f"`PushSettings({option.field}=…)`"
    command_options = (*options_of(CommandOptions), *options_of(AuthOptions))
    return "" if option in command_options else f"`{option.field}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
