"""Every Python example in the documentation runs, and prints what it says.

One fenced as `python test="lint"` is only linted: it serves until it is interrupted.
"""

import sys
from pathlib import Path
from traceback import walk_tb

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

ROOT = Path(__file__).parents[1]
PLACES = [
    "*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "packages/*/README.md",
    "packages/*/src/**/*.py",
]
EXAMPLES = [*find_examples(*(path for place in PLACES for path in sorted(ROOT.glob(place))))]


def place(example: CodeExample) -> str:
    return f"{example.path.relative_to(ROOT)}:{example.start_line}"


def run(example: CodeExample, eval_example: EvalExample) -> str | None:
    """What *example* raises, and where.

    It is told in words, for pytest cannot print the frames that pytest-examples makes up on
    Python 3.11: the whole session would end with an internal error.
    """
    try:
        eval_example.run_print_check(example)
    except Exception as error:  # whatever an example raises
        *_, (_, line) = walk_tb(error.__traceback__)
        return f"{example.path}:{line}: {error!r}"
    return None


@pytest.mark.parametrize("example", EXAMPLES, ids=place)
def test_an_example_is_true(
    example: CodeExample, eval_example: EvalExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the example replaces it
    eval_example.set_config(line_length=100, ruff_line_length=100, target_version="py310")

    eval_example.lint_ruff(example)
    if example.prefix_settings().get("test") != "lint":
        failure = run(example, eval_example)
        assert failure is None, failure


@pytest.mark.parametrize("suffix", [".md", ".py"])
def test_there_are_examples_that_run(suffix: str) -> None:
    assert any(
        example.path.suffix == suffix and "test" not in example.prefix_settings()
        for example in EXAMPLES
    )
