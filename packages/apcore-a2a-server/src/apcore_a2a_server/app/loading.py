"""An explanation for a folder without modules: the files that could not be loaded, and why."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from apcore.errors import ModuleLoadError
from apcore_a2a_core import clean

registry_logger = logging.getLogger("apcore.registry.registry")

MODULE_FORMAT = (
    "A module is a .py file with one class that has a description, pydantic models as "
    "input_schema and output_schema, and execute(self, inputs, context)."
)
MAX_SHOWN = 20
"""Files that the explanation lists."""


@contextmanager
def load_failures() -> Generator[dict[str, str]]:
    """Collect the reasons why apcore fails to load modules within this context, by module id.

    apcore only logs failures, so a filter reads its log records. The filter sees warnings even if
    the configured level hides them, and then drops them.
    """
    failures: dict[str, str] = {}
    level, effective_level = registry_logger.level, registry_logger.getEffectiveLevel()

    def collect(record: logging.LogRecord) -> bool:
        match record.args:
            case (str(module_id), problem) if record.levelno >= logging.WARNING:
                failures[module_id] = _reason(problem)
            case _:
                pass
        return record.levelno >= effective_level

    registry_logger.addFilter(collect)
    registry_logger.setLevel(min(effective_level, logging.WARNING))
    try:
        yield failures
    finally:
        registry_logger.setLevel(level)
        registry_logger.removeFilter(collect)


def no_modules(folder: Path, failures: Mapping[str, str]) -> str:
    """Explain why *folder* has no modules: which files failed, and the format of a module."""
    if not failures:
        return f"There are no modules to serve in {folder}\n{MODULE_FORMAT}"
    lines = [f"  {_file(folder, each)}: {failures[each]}" for each in sorted(failures)[:MAX_SHOWN]]
    if len(failures) > MAX_SHOWN:
        lines.append(f"  and {len(failures) - MAX_SHOWN} more")
    return "\n".join([f"No module in {folder} could be loaded:", *lines, MODULE_FORMAT])


def _file(folder: Path, module_id: str) -> str:
    name = module_id.replace(".", "/") + ".py"
    return clean(name if (folder / name).is_file() else module_id)


def _reason(problem: object) -> str:
    """Describe a problem without the message of a module's own exception: it may hold secrets."""
    if isinstance(problem, ModuleLoadError) and problem.__cause__ is None:
        return str(problem.details.get("reason"))
    if isinstance(problem, ModuleLoadError):
        problem = problem.__cause__
    return type(problem).__name__ if isinstance(problem, BaseException) else clean(str(problem))
