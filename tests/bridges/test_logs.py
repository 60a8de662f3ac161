"""Texts of exceptions in the records of frameworks' loggers."""

import logging

import pytest
from apcore_a2a_bridges.logs import hide_exception_texts


def test_texts_of_exceptions_are_in_debug_records_alone(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("some_framework.runner")
    hide_exception_texts("some_framework")
    caplog.set_level(logging.DEBUG)
    try:
        raise ValueError("hunter2")
    except ValueError as error:
        logger.exception("Run %d failed", 7)
        logger.error("Run %d failed: %s", 8, error)
    formatter = logging.Formatter()
    above = [formatter.format(r) for r in caplog.records if r.levelno > logging.DEBUG]
    below = [formatter.format(r) for r in caplog.records if r.levelno == logging.DEBUG]
    assert above == ["Run 7 failed (ValueError)", "Run 8 failed: ValueError"]
    assert all("hunter2" in text for text in below)
    assert len(below) == 2


def test_a_logger_that_is_made_later_gets_the_filter_too(caplog: pytest.LogCaptureFixture) -> None:
    hide_exception_texts("late_framework")
    logger = logging.getLogger("late_framework.later")
    hide_exception_texts("late_framework")
    logger.error("Failed: %s", ValueError("hunter2"))
    logging.getLogger("late_framework_of_others").error("Failed: %s", ValueError("shown"))
    assert "hunter2" not in caplog.text
    assert "shown" in caplog.text
