"""Hold the packages to their size: short functions, and modules neither long nor tiny.

Code lines hold code: no blanks, no comments, no docstrings. Of a function its body counts. The
body of a nested function counts for the nested one in the median and the percentile; for the upper
bound it counts for the outer one too, since a reader has to go through all of it. Functions without
code, as in protocols and overloads, are left out.

A module below 40 lines is tiny: a reader opens a file for it. One in ten may be; `__init__.py`
and `__main__.py` do not count.
"""

import ast
import io
import math
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MEDIAN, PERCENTILE_95, LONGEST = 8, 35, 50  # code lines of a function's body
LONG, TINY = 500, 40  # lines of any kind in a module
TINY_SHARE = 0.1  # of all modules

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


@dataclass(frozen=True)
class Function:
    """A function's place, and the code lines of its body without nested ones and with them."""

    place: str
    own: int
    whole: int


@dataclass(frozen=True)
class Module:
    """A module: where it is, all its lines, its code lines, its functions."""

    path: Path
    lines: int
    code: int
    functions: list[Function]


def lines_of(*nodes: ast.stmt) -> set[int]:
    """The line numbers that *nodes* span, decorators included."""
    starts = ((min([n.lineno, *decorators_of(n)]), n.end_lineno or n.lineno) for n in nodes)
    return {line for start, end in starts for line in range(start, end + 1)}


def decorators_of(node: ast.stmt) -> list[int]:
    """The line numbers on which the decorators of *node* start."""
    return [decorator.lineno for decorator in getattr(node, "decorator_list", [])]


def is_inert(node: ast.AST) -> bool:
    """Whether *node* is a docstring or an ellipsis standing alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines in *source* that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    docstrings = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and is_inert(n)]
    return lines - lines_of(*docstrings)


def functions_in(tree: ast.AST) -> list[FunctionNode]:
    """Every function below *tree*, at any depth."""
    nodes = (n for n in ast.walk(tree) if n is not tree)
    return [n for n in nodes if isinstance(n, FunctionNode)]


def measured(path: Path) -> Module:
    """The sizes of the module at *path*."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    code = code_lines(source, tree)
    functions = []
    for node in functions_in(tree):
        if not all(is_inert(statement) for statement in node.body):
            whole = code & lines_of(*node.body)
            nested = {line for inner in functions_in(node) for line in lines_of(*inner.body)}
            place = f"{path}:{node.lineno} {node.name}"
            functions.append(Function(place, len(whole - nested), len(whole)))
    return Module(path, len(source.splitlines()), len(code), functions)


def measure_all(packages: Path) -> dict[str, list[Module]]:
    """Measure the modules of each distribution under *packages*."""
    groups: dict[str, list[Module]] = {}
    for package in sorted(path.parent for path in packages.glob("*/pyproject.toml")):
        source = package / "src" / package.name.replace("-", "_")
        groups[package.name] = [measured(path) for path in sorted(source.rglob("*.py"))]
    return groups


def percentile_95(values: list[int]) -> int:
    """The smallest of *values* that 95 % of them do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0


def tiny(modules: list[Module]) -> tuple[list[Module], int]:
    """The tiny ones among *modules*, and how many modules count."""
    counted = [m for m in modules if not m.path.name.startswith("__")]
    return [m for m in counted if m.lines < TINY], len(counted)


def excesses(name: str, modules: list[Module]) -> Iterator[str]:
    """Yield a line for each bound that the group *name* exceeds."""
    functions = [function for module in modules for function in module.functions]
    own = [function.own for function in functions]
    if own and median(own) > MEDIAN:
        yield f"{name}: the median function has {median(own):g} lines, at most {MEDIAN}"
    if percentile_95(own) > PERCENTILE_95:
        yield f"{name}: the 95th percentile is {percentile_95(own)} lines, at most {PERCENTILE_95}:"
        yield from (f"    {f.place}: {f.own} lines" for f in functions if f.own > PERCENTILE_95)
    yield from (
        f"{f.place}: {f.whole} lines, at most {LONGEST}" for f in functions if f.whole > LONGEST
    )
    yield from (f"{m.path}: {m.lines} lines, at most {LONG}" for m in modules if m.lines > LONG)


def tiny_excess(modules: list[Module]) -> Iterator[str]:
    """Yield the tiny modules when there are too many."""
    found, counted = tiny(modules)
    if len(found) > TINY_SHARE * counted:
        limit = f"at most {TINY_SHARE:.0%}"
        yield f"{len(found)} of {counted} modules have fewer than {TINY} lines, {limit}:"
        yield from (f"    {m.path}: {m.lines} lines" for m in found)


def row(name: str, modules: list[Module]) -> str:
    """The line of the table for the group *name*."""
    functions = [function for module in modules for function in module.functions]
    own = [function.own for function in functions]
    cells: list[object] = [len(modules), len(tiny(modules)[0])]
    cells += [sum(module.code for module in modules)]
    cells += [len(own), f"{median(own or [0]):g}", percentile_95(own)]
    cells += [max((function.whole for function in functions), default=0)]
    return f"{name:20}" + "".join(f"{cell:>10}" for cell in cells)


def main(packages: Path) -> int:
    """Print the sizes of what is under *packages*; returns 1 when something is too big, else 0."""
    groups = measure_all(packages)
    everything = [module for modules in groups.values() for module in modules]
    header = ["modules", "tiny", "code", "functions", "median", "95 %", "longest"]
    print(f"{'':20}" + "".join(f"{title:>10}" for title in header))
    rows = {**groups, "all": everything}
    for name, modules in rows.items():
        print(row(name, modules))
    found = dict.fromkeys(
        line for name, modules in rows.items() for line in excesses(name, modules)
    )
    found |= dict.fromkeys(tiny_excess(everything))
    print(*(["\nout of bounds:", *found] if found else []), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1] / "packages"))
