"""Explanations for targets without modules: the files that could not be loaded, and why."""

import ast
import logging
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from apcore import ModuleError
from apcore.errors import ModuleLoadError
from apcore_a2a_core import clean

registry_logger = logging.getLogger("apcore.registry.registry")

MODULE_FORMAT = (
    "A module is a function with type hints, decorated with @module (from apcore.decorator import "
    "module); or the only class in its .py file that has a description, pydantic models as "
    "input_schema and output_schema, and execute(self, inputs, context)."
)
NO_CLASS = "No Module subclass found in file"
"""apcore's message for a file without a class that is a module."""
CLASS_MEMBERS = ("description", "input_schema", "output_schema", "execute")
EXPLAINED_ERRORS = (ImportError, NameError, SyntaxError)
"""Python errors whose messages are shown: they quote code, but no values, which may be secret."""
MODULE_HOLDERS = ("APCore", "FastAPIApcore", "Registry", "Executor")
"""Names of classes whose objects hold modules."""
MAX_SHOWN = 20
"""Maximum number of files that the explanation lists."""


class NoModulesError(ValueError):
    """There are no modules where they are expected; the message says why."""


class DeferredError(Exception):
    """Error that keeps apcore from importing a file, which is imported later."""


@contextmanager
def load_failures() -> Generator[dict[str, str]]:
    """Collect the reasons why apcore fails to load modules during the block, by module id.

    apcore only logs failures, so a filter reads its log records. If the configured level hides
    warnings, the filter still reads them, and then drops them.
    """
    failures: dict[str, str] = {}
    level, effective_level = registry_logger.level, registry_logger.getEffectiveLevel()

    def collect(record: logging.LogRecord) -> bool:
        match record.args:
            case (str(), ModuleLoadError(__cause__=ModuleLoadError() as error)):
                problem: object = error
            case (str(), problem):
                pass
            case _:  # drop "No modules …": functions and bindings are loaded later
                return record.levelno >= effective_level and "No modules" not in record.msg
        if isinstance(getattr(problem, "__cause__", None), DeferredError):
            return False
        if record.levelno >= logging.WARNING:
            failures[str(record.args[0])] = reason_of(problem)
        return record.levelno >= effective_level

    registry_logger.addFilter(collect)
    registry_logger.setLevel(min(effective_level, logging.WARNING))
    try:
        yield failures
    finally:
        registry_logger.setLevel(level)
        registry_logger.removeFilter(collect)


def explain_no_modules(folder: Path, failures: Mapping[str, str]) -> str:
    """Explain why *folder* has no modules: which files failed, and the format of a module."""
    if not failures:
        return f"There are no modules to serve in {folder}\n{MODULE_FORMAT}"
    lines: list[str] = []
    for module_id in sorted(failures)[:MAX_SHOWN]:
        file = folder / (module_id.replace(".", "/") + ".py")
        name = file.relative_to(folder).as_posix() if file.is_file() else module_id
        lines.append(f"  {clean(name)}: {with_hint(failures[module_id], file)}")
    if len(failures) > MAX_SHOWN:
        lines.append(f"  and {len(failures) - MAX_SHOWN} more")
    return "\n".join([f"No module in {folder} could be loaded:", *lines, MODULE_FORMAT])


def with_hint(reason: str, file: Path) -> str:
    """Return *reason*, followed by the hint of `_class_hint` if the file has no module class."""
    hint = _class_hint(file) if reason == NO_CLASS else ""
    return f"{reason}: {hint}" if hint else reason


def _class_hint(file: Path) -> str:
    """Return the reason why a class or function of a file is not a module; "" if unknown."""
    tree = parse(file)
    body = [] if tree is None else tree.body
    for node in body:
        if isinstance(node, ast.ClassDef) and "execute" in (names := _members(node)):
            missing = [name for name in CLASS_MEMBERS if name not in names]
            if missing:
                return f"class {node.name} lacks {', '.join(missing)}"
            return f"input_schema and output_schema of class {node.name} must be pydantic models"
    functions = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return f"its function {functions[0]} is not decorated with @module" if functions else ""


def _members(node: ast.ClassDef) -> set[str]:
    """Return the names that the body of a class defines."""
    names: set[str] = set()
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                nodes = (node for target in targets for node in ast.walk(target))
                names |= {node.id for node in nodes if isinstance(node, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return names


def creates_modules(file: Path) -> bool:
    """Return whether a file uses the decorator `module`, or calls a class in `MODULE_HOLDERS`."""
    tree = parse(file)
    if tree is None:
        return False
    names = {"module", *MODULE_HOLDERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("apcore"):
            imported = (alias for alias in node.names if alias.name in names)
            names |= {alias.asname for alias in imported if alias.asname}
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    called += [decorator for function in functions for decorator in function.decorator_list]
    return any(getattr(n, "id", getattr(n, "attr", None)) in names for n in called)


def holders_in(namespace: ModuleType) -> dict[str, Any]:
    """Return objects with modules, by name: APCore clients, else executors, else registries."""
    objects: dict[str, Any] = {}
    for name, value in vars(namespace).items():
        if type(value).__name__ in MODULE_HOLDERS and not any(
            value is known for known in objects.values()
        ):
            objects[name] = value
    for attribute in ("executor", "registry", "list"):
        sources = {
            name: item
            for name, item in objects.items()
            if hasattr(item, attribute) and getattr(item, "registry", item).list()
        }
        if sources:
            return sources
    return {}


def parse(file: Path) -> ast.Module | None:
    """Return the syntax tree of a file; None if it can't be read or is not Python."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def reason_of(problem: object) -> str:
    """Describe a problem, but leave out exception messages that may contain secrets."""
    file = ""
    if isinstance(problem, ModuleLoadError):
        if problem.__cause__ is None:
            return str(problem.details.get("reason"))
        # apcore puts the path of the file into `module_id`
        file, problem = str(problem.details.get("module_id")), problem.__cause__
    if not isinstance(problem, BaseException):
        return clean(str(problem))
    if isinstance(problem, ModuleError):
        return clean(problem.message, 500)
    text = type(problem).__name__
    if isinstance(problem, EXPLAINED_ERRORS):
        text += f": {getattr(problem, 'msg', problem)}"
    return clean(text + _line_hint(problem, file), 500)


def _line_hint(error: BaseException, file: str) -> str:
    """Return " (line N)" for the line of *file* where an error occurred; "" if it is unknown."""
    number: Any = getattr(error, "lineno", None)
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == file:
            number = frame.lineno
    return f" (line {number})" if number else ""
