"""Loggers of frameworks: the texts of exceptions may hold secrets, so they stay out of the log."""

from __future__ import annotations

import logging
from typing import Any

_counts: dict[str, int] = {}
"""Number of loggers that there were when those of a framework got their filter."""


class ExceptionTextFilter(logging.Filter):
    """A filter that leaves the type of an exception in a record, and logs the rest at DEBUG.

    It changes exceptions that a record has as its `exc_info` or as arguments.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record, and let it pass."""
        errors = [arg for arg in _arguments_of(record) if isinstance(arg, BaseException)]
        raised = record.exc_info[1] if record.exc_info else None
        if record.levelno <= logging.DEBUG or not (errors or raised):
            return True
        logger = logging.getLogger(record.name)
        logger.debug(record.msg, *_arguments_of(record), exc_info=raised)
        if isinstance(record.args, tuple):
            record.args = tuple(_without_text(arg) for arg in record.args)
        if raised is not None:
            record.msg, record.args = f"{record.getMessage()} ({type(raised).__name__})", ()
            record.exc_info = record.exc_text = None
        return True


_FILTER = ExceptionTextFilter()


def hide_exception_texts(framework: str) -> None:
    """Keep the texts of exceptions out of the records of a framework's loggers above DEBUG.

    Filters hold for one logger and not for those below it, so call this again when the framework
    may have made new ones; that costs nothing if there are none.

    Args:
        framework: The name of its uppermost logger.
    """
    loggers = logging.root.manager.loggerDict
    if _counts.get(framework) == len(loggers):
        return
    _counts[framework] = len(loggers)
    for name, logger in [*loggers.items()]:
        is_of_framework = name == framework or name.startswith(f"{framework}.")
        if is_of_framework and isinstance(logger, logging.Logger):
            logger.addFilter(_FILTER)  # which does nothing the second time


def _arguments_of(record: logging.LogRecord) -> tuple[Any, ...]:
    return record.args if isinstance(record.args, tuple) else ()


def _without_text(arg: Any) -> Any:
    return type(arg).__name__ if isinstance(arg, BaseException) else arg
