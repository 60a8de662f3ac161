"""Loggers of frameworks: texts of exceptions may hold secrets, so they are logged only at DEBUG."""

from __future__ import annotations

import logging
import os
from typing import Any

from apcore_a2a_core.values import is_object

_logger_counts: dict[tuple[str, logging.Filter], int] = {}
"""The number of loggers in the process when a filter was last added to those of a framework."""


class ExceptionTextFilter(logging.Filter):
    """A filter that replaces exceptions in a record by their types.

    The unchanged record is logged at DEBUG, too. The filter finds exceptions in `exc_info`, as the
    message, among the arguments, and in dicts among the arguments.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record, and let it pass."""
        # if the only argument is a dict, `args` is this dict and not a tuple
        args: Any = record.args
        arguments: tuple[Any, ...] = (args,) if is_object(args) else args or ()
        exception = record.exc_info[1] if record.exc_info else None
        has_errors = exception is not None or any(map(_has_error, (record.msg, *arguments)))
        if record.levelno <= logging.DEBUG or not has_errors:
            return True
        logger = logging.getLogger(record.name)
        logger.debug(record.msg, *arguments, exc_info=exception)
        record.msg = _without_exceptions(record.msg)
        shown_arguments = tuple(_without_exceptions(argument) for argument in arguments)
        record.args = shown_arguments[0] if is_object(args) else shown_arguments
        if exception is not None:
            record.msg, record.args = f"{record.getMessage()} ({type(exception).__name__})", ()
            record.exc_info = record.exc_text = None
        return True


class DebugFilter(logging.Filter):
    """A filter that logs all records of a package at DEBUG, regardless of their level.

    Some frameworks write the text of an exception into the message, where no filter can tell that
    text from the rest. They may also log with functions such as `logging.error`, which use the
    root logger.

    Args:
        folder: The folder of the package's modules.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder.rstrip(os.sep) + os.sep

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of a record of the package; drop it if DEBUG is not logged."""
        if record.levelno <= logging.DEBUG or not record.pathname.startswith(self._folder):
            return True
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


_FILTER = ExceptionTextFilter()
_debug_filters: dict[tuple[str, str], DebugFilter] = {}
"""The filters of packages, by the names of their loggers and their folders."""


def hide_exception_texts(framework: str) -> None:
    """Keep the texts of exceptions out of a framework's log records above DEBUG.

    A filter applies to one logger and not to those below it, so call this again when the framework
    may have created new loggers. Without new loggers, the call is cheap.

    Args:
        framework: The name of the framework's top-level logger.
    """
    _add_filter(framework, _FILTER)


def log_at_debug(framework: str, folder: str) -> None:
    """Log the records of a framework at DEBUG, even those that it logs on the root logger.

    As with `hide_exception_texts`, call this again when the framework may have new loggers.

    Args:
        framework: The name of the framework's top-level logger.
        folder: A folder of the framework's modules; if there are several, call this for each.
    """
    debug_filter = _debug_filters.setdefault((framework, folder), DebugFilter(folder))
    logging.getLogger().addFilter(debug_filter)
    _add_filter(framework, debug_filter)


def _add_filter(framework: str, new_filter: logging.Filter) -> None:
    """Add a filter to the loggers of a framework; those that have it already stay unchanged."""
    loggers = logging.root.manager.loggerDict
    if _logger_counts.get((framework, new_filter)) == len(loggers):
        return
    _logger_counts[framework, new_filter] = len(loggers)
    for name in [*loggers]:
        if name == framework or name.startswith(f"{framework}."):
            # getLogger turns a placeholder in loggerDict into a logger. If the framework did that
            # later, the number of names would not change, and the logger would get no filter.
            logging.getLogger(name).addFilter(new_filter)


def _has_error(argument: Any) -> bool:
    """Return whether an argument is an exception, or a dict with one."""
    if is_object(argument):
        return any(isinstance(member, BaseException) for member in argument.values())
    return isinstance(argument, BaseException)


def _without_exceptions(argument: Any) -> Any:
    """Return an argument with each exception replaced by its type."""
    if is_object(argument):
        return {name: _without_exceptions(member) for name, member in argument.items()}
    return type(argument).__name__ if isinstance(argument, BaseException) else argument
