"""Python examples in the documentation run and print what they claim, and links are valid.

An example fenced as `python test="lint"` is only linted: it serves until it is interrupted. Those
with `title="…"`, `packages="…"` or `test="session"` are linted here and run in `test_sessions.py`.
"""

import logging
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import TypeVar

import apcore_a2a
import pytest
from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP
from apcore_a2a_client import A2AServerError
from apcore_a2a_core.error_mapper import ErrorMapper, error_details
from apcore_a2a_server.bindings.rest import STATUSES
from apcore_a2a_server.errors import RetryLaterError
from pytest_examples import CodeExample, EvalExample, find_examples

Kind = TypeVar("Kind", bound=Exception)
ROOT = Path(__file__).parents[1]
PATTERNS = [
    "*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "packages/*/README.md",
    "packages/*/src/**/*.py",
]
EXAMPLES = [*find_examples(*(path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))))]
PAGES = sorted(
    path for pattern in PATTERNS if pattern.endswith(".md") for path in ROOT.glob(pattern)
)

FENCED = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
LINK = re.compile(
    r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|(?:src|srcset|href)=\"([^\"]+)\"", re.MULTILINE
)
DEFINITION = re.compile(r"\[`([\w./-]+\.py)`\] `([\w.]+)`(?:, `([\w.]+)`)?")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def location(example: CodeExample) -> str:
    return f"{example.path.relative_to(ROOT)}:{example.start_line}"


def run(example: CodeExample, eval_example: EvalExample) -> str | None:
    """Return the error of *example* and its line, or None.

    The error is returned as text because pytest on Python 3.11 cannot print the frames that
    pytest-examples creates: the whole session would end with an internal error.
    """
    try:
        try:
            eval_example.run_print_check(example)
        except SystemError as error:  # CPython 3.11 counts the depth of all threads (gh-106905)
            if "AST constructor recursion depth" not in str(error):
                raise
            eval_example.run_print_check(example)
    except Exception as error:  # whatever an example raises
        *_, (_, line) = walk_tb(error.__traceback__)
        return f"{example.path}:{line}: {error!r}"
    return None


@pytest.fixture(autouse=True)
def restore_log_level() -> Iterator[None]:
    """Restore the level of apcore's log, which an example changes."""
    log = logging.getLogger("apcore")
    level = log.level
    yield
    log.setLevel(level)


@pytest.mark.parametrize("example", EXAMPLES, ids=location)
def test_an_example_runs_and_prints_what_it_claims(
    example: CodeExample, eval_example: EvalExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the example replaces it
    eval_example.set_config(
        line_length=100,
        ruff_line_length=100,
        # the page documents the example, and module authors write plain attributes
        ruff_ignore=["D1", "RUF012"],
        target_version="py310",
    )

    eval_example.lint_ruff(example)
    if runs_here(example):
        failure = run(example, eval_example)
        assert failure is None, failure


def runs_here(example: CodeExample) -> bool:
    """Return whether this file runs an example, and does not only lint it."""
    settings = example.prefix_settings()
    runs_elsewhere = {"title", "packages"} & settings.keys()
    return not runs_elsewhere and settings.get("test") not in ("lint", "session")


@pytest.mark.parametrize("suffix", [".md", ".py"])
def test_some_examples_run(suffix: str) -> None:
    assert any(example.path.suffix == suffix for example in EXAMPLES if runs_here(example))


def relative_links(page: Path) -> list[str]:
    """Return the links of *page* to files of this repository, or to its own headings."""
    matches = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    links = ["".join(groups) for groups in matches]
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of *page*."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(text)]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


def is_valid(page: Path, link: str) -> bool:
    """Return whether the target of a relative link exists, and has the heading after `#`."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


def test_every_relative_link_leads_to_a_file_and_its_heading() -> None:
    links = [(page, link) for page in PAGES for link in relative_links(page)]
    assert len(links) > 50
    assert [
        f"{page.relative_to(ROOT)}: {link}" for page, link in links if not is_valid(page, link)
    ] == []


def test_names_in_the_architecture_are_defined_in_the_linked_files() -> None:
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    links = dict(re.findall(r"^\[`(.+)`\]: (\S+)$", text, re.MULTILINE))
    named = [(link, name) for link, *names in DEFINITION.findall(text) for name in names if name]
    assert len(named) > 20
    missing = []
    for link, name in named:
        source = (page.parent / links[link]).read_text(encoding="utf-8")
        for part in name.split("."):
            if not re.search(rf"(?:def|class) {part}\b|\b(?:self\.)?{part}(?::| =)", source):
                missing.append(f"{link}: {name}")
    assert missing == []


def test_the_events_in_logs_are_those_that_the_operations_page_lists() -> None:
    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| [A-Z]", (ROOT / "docs/operations.md").read_text(), re.M
    )
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    code = "".join(path.read_text() for path in ROOT.glob("packages/*/src/**/*.py"))
    logged = set(re.findall(r'"event": "(\w+)"', code))
    assert logged <= listed
    assert {name for name in listed if f'"{name}"' not in code} == set()


def test_the_page_of_errors_has_their_codes_reasons_and_exceptions() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (-32\d{3}) \| (\d{3})[^|]*\| `(\w+)`[^|<]*<br>`(\w+)` \|", page, re.M)
    listed = {reason: (int(code), int(status)) for code, status, reason, _ in rows}
    protocol = {
        reason: (JSON_RPC_ERROR_CODE_MAP[kind], STATUSES[kind][0])
        for kind, reason in A2A_ERROR_REASONS.items()
    }
    assert listed | protocol == listed
    (busy_row,) = re.findall(r"^\| -32029 .*$", page, re.M)
    busy_errors: list[type[RetryLaterError]] = [RetryLaterError, *descendants(RetryLaterError)]
    answers = [ErrorMapper().to_jsonrpc_error(kind()) for kind in busy_errors]
    reasons = {error_details(answer)[0]["reason"] for answer in answers}
    assert {*re.findall(r"`([A-Z_]+)`", busy_row)} <= reasons
    classes = {kind.__name__: kind.code for kind in descendants(A2AServerError)}
    assert {name: int(code) for code, *_, name in rows if name in classes} == classes


def descendants(kind: type[Kind]) -> list[type[Kind]]:
    """Return the classes below *kind*."""
    return [found for child in kind.__subclasses__() for found in (child, *descendants(child))]


@pytest.mark.parametrize("part", ["core", "server"])
def test_the_reference_of_the_api_lists_every_public_name(part: str) -> None:
    page = (ROOT / "docs" / "api" / f"{part}.md").read_text(encoding="utf-8")
    module = import_module(f"apcore_a2a_{part}")

    assert {*module.__all__} <= {*re.findall(rf"^::: {module.__name__}\.(\w+)$", page, re.M)}


def test_the_reference_of_the_facade_has_all_its_public_names() -> None:
    page = (ROOT / "docs/api/facade.md").read_text(encoding="utf-8")

    assert {*re.findall(r"`(\w+)`", page)} >= {*apcore_a2a.__all__}
