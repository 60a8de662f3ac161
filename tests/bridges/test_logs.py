"""Texts of exceptions in the records of frameworks' loggers."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from apcore_a2a_bridges.logs import hide_exception_texts, log_at_debug


def test_texts_of_exceptions_are_only_in_debug_records(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("some_framework.runner")
    hide_exception_texts("some_framework")
    caplog.set_level(logging.DEBUG)
    try:
        raise ValueError("hunter2")
    except ValueError as error:
        logger.exception("Run %d failed", 7)
        logger.error("Run %d failed: %s", 8, error)
        logger.error("Run %(run)d failed: %(error)s", {"run": 9, "error": error})
        logger.error("Run %(run)d failed", {"run": 10})
        logger.error(error)
    formatter = logging.Formatter()
    shown_texts = [formatter.format(r) for r in caplog.records if r.levelno > logging.DEBUG]
    debug_texts = [formatter.format(r) for r in caplog.records if r.levelno == logging.DEBUG]
    assert shown_texts == [
        "Run 7 failed (ValueError)",
        "Run 8 failed: ValueError",
        "Run 9 failed: ValueError",
        "Run 10 failed",
        "ValueError",
    ]
    assert all("hunter2" in text for text in debug_texts)
    assert len(debug_texts) == 4


def test_a_second_call_adds_the_filter_to_new_loggers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hide_exception_texts("late_framework")
    logger = logging.getLogger("late_framework.later")
    hide_exception_texts("late_framework")
    logger.error("Failed: %s", ValueError("hunter2"))
    logging.getLogger("late_framework_fork").error("Failed: %s", ValueError("shown"))
    assert "hunter2" not in caplog.text
    assert "shown" in caplog.text


def test_loggers_above_the_first_ones_are_filtered_too(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("deep_framework.agents.runner")
    hide_exception_texts("deep_framework")
    for name in ("deep_framework.agents", "deep_framework"):
        logger = logging.getLogger(name)
        hide_exception_texts("deep_framework")
        logger.error("Failed: %s", ValueError("hunter2"))
    assert "Failed" in caplog.text
    assert "hunter2" not in caplog.text


def test_records_of_a_package_are_logged_only_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    log_at_debug("noisy_framework", str(Path(__file__).parent))
    logger = logging.getLogger("noisy_framework.flows")
    log_at_debug("noisy_framework", str(Path(__file__).parent))
    log_at_debug("quiet_framework", "/another/folder")
    caplog.set_level(logging.INFO)
    logger.error("the password is hunter2")
    logging.error("the password is hunter2")  # some frameworks use the root logger
    assert caplog.text == ""
    caplog.set_level(logging.DEBUG)
    logging.error("the password is hunter2")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_a_package_may_have_two_folders(caplog: pytest.LogCaptureFixture) -> None:
    for folder in ("/another/folder", str(Path(__file__).parent)):
        log_at_debug("split_framework", folder)
    caplog.set_level(logging.INFO)
    logging.error("the password is hunter2")
    assert caplog.text == ""


@pytest.fixture(autouse=True)
def _restored_filters() -> Iterator[None]:
    """Restore the filters of the root logger, which other tests use."""
    filters = [*logging.root.filters]
    yield
    logging.root.filters[:] = filters
