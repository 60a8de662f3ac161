"""Check the size of functions and modules, and the length of local names.

Code lines are all lines except blank lines, comments and docstrings. Of a function, only the body
counts. The lines of a nested function count for the outer function only in the upper bound, not in
the median and the percentile. Functions without code, as in protocols and overloads, are left out.

A module with fewer than 40 lines is tiny: hardly worth a file. At most one module in ten may be
tiny; `__init__.py` and `__main__.py` do not count.

Local names are the parameters and variables of a function, each counted once per function.
"""

import ast
import io
import math
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

MAX_MEDIAN, MAX_P95, MAX_FUNCTION_LINES = 8, 35, 50  # code lines of a function's body
MAX_MODULE_LINES, TINY = 500, 40  # lines of any kind in a module
MAX_TINY_SHARE = 0.1  # of all modules
MIN_MEAN_LENGTH = 6.5  # characters; of the local names in each of NAME_FOLDERS
NAME_FOLDERS = (
    "apcore_a2a_client",
    "apcore_a2a_server/engine",
    "apcore_a2a_server/push",
    "apcore_a2a_server/store",
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
NON_CODE_TOKENS = {
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
    """A function's location, and its code lines without and with nested functions."""

    location: str
    own_lines: int
    all_lines: int


@dataclass(frozen=True)
class Module:
    """A module's path, number of lines and of code lines, functions, and local names."""

    path: Path
    lines: int
    code: int
    functions: list[Function]
    names: list[str]


def lines_of(*nodes: ast.stmt) -> set[int]:
    """Return the line numbers that *nodes* span, including decorators."""
    starts = ((min([n.lineno, *decorator_lines(n)]), n.end_lineno or n.lineno) for n in nodes)
    return {line for start, end in starts for line in range(start, end + 1)}


def decorator_lines(node: ast.stmt) -> list[int]:
    """Return the line numbers on which the decorators of *node* start."""
    return [decorator.lineno for decorator in getattr(node, "decorator_list", [])]


def is_inert(node: ast.AST) -> bool:
    """Return whether *node* is a docstring or a lone ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines in *source* that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NON_CODE_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    docstrings = [n for n in nodes_below(tree) if isinstance(n, ast.Expr) and is_inert(n)]
    return lines - lines_of(*docstrings)


def nodes_below(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes below *tree*, at any depth, except expressions and their parts."""
    nodes = [tree]
    for node in nodes:
        nodes += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))
    return nodes[1:]


def functions_in(tree: ast.AST) -> list[FunctionNode]:
    """Return all functions below *tree*, at any depth."""
    return [n for n in nodes_below(tree) if isinstance(n, FunctionNode)]


def own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """Yield the nodes of *function* without those of functions and classes nested in it."""
    nodes = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if not isinstance(node, FunctionNode | ast.ClassDef):
            yield node
            nodes.extend(ast.iter_child_nodes(node))


def local_names(function: FunctionNode) -> set[str]:
    """Return the names of the parameters and variables of *function*."""
    names = set()
    for node in own_nodes(function):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
    return {name for name in names if name not in {"self", "cls"} and name.strip("_")}


def measure(path: Path) -> Module:
    """Return the sizes of the module at *path*."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    code = code_lines(source, tree)
    functions, names = [], []
    for node in functions_in(tree):
        names += sorted(local_names(node))
        if not all(is_inert(statement) for statement in node.body):
            whole = code & lines_of(*node.body)
            nested = {line for inner in functions_in(node) for line in lines_of(*inner.body)}
            location = f"{path}:{node.lineno} {node.name}"
            functions.append(Function(location, len(whole - nested), len(whole)))
    return Module(path, len(source.splitlines()), len(code), functions, names)


def measure_all(packages: Path) -> dict[str, list[Module]]:
    """Measure the modules of each distribution under *packages*."""
    groups: dict[str, list[Module]] = {}
    for package in sorted(path.parent for path in packages.glob("*/pyproject.toml")):
        source = package / "src" / package.name.replace("-", "_")
        groups[package.name] = [measure(path) for path in sorted(source.rglob("*.py"))]
    return groups


def percentile_95(values: list[int]) -> int:
    """Return the smallest of *values* that 95 % of them do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0


def find_tiny_modules(modules: list[Module]) -> tuple[list[Module], int]:
    """Return the tiny ones among *modules*, and the number of modules that count."""
    counted = [m for m in modules if not m.path.name.startswith("__")]
    return [m for m in counted if m.lines < TINY], len(counted)


def excesses(name: str, modules: list[Module]) -> Iterator[str]:
    """Yield messages about the bounds that the group *name* exceeds."""
    functions = [function for module in modules for function in module.functions]
    counts = [function.own_lines for function in functions]
    if counts and median(counts) > MAX_MEDIAN:
        yield f"{name}: the median function has {median(counts):g} lines, more than {MAX_MEDIAN}"
    if percentile_95(counts) > MAX_P95:
        yield f"{name}: the 95th percentile is {percentile_95(counts)} lines, more than {MAX_P95}:"
        yield from (
            f"    {f.location}: {f.own_lines} lines" for f in functions if f.own_lines > MAX_P95
        )
    yield from (
        f"{f.location}: {f.all_lines} lines, more than {MAX_FUNCTION_LINES}"
        for f in functions
        if f.all_lines > MAX_FUNCTION_LINES
    )
    yield from (
        f"{m.path}: {m.lines} lines, more than {MAX_MODULE_LINES}"
        for m in modules
        if m.lines > MAX_MODULE_LINES
    )


def tiny_excess(modules: list[Module]) -> Iterator[str]:
    """Yield messages about the tiny modules if too many modules are tiny."""
    tiny_modules, count = find_tiny_modules(modules)
    if len(tiny_modules) > MAX_TINY_SHARE * count:
        limit = f"more than {MAX_TINY_SHARE:.0%}"
        yield f"{len(tiny_modules)} of {count} modules have fewer than {TINY} lines, {limit}:"
        yield from (f"    {m.path}: {m.lines} lines" for m in tiny_modules)


def mean_name_lengths(modules: list[Module]) -> dict[str, float]:
    """Return the mean length of local names in each of `NAME_FOLDERS`."""
    names = {
        folder: [name for m in modules if f"/src/{folder}/" in str(m.path) for name in m.names]
        for folder in NAME_FOLDERS
    }
    return {folder: mean(map(len, local)) for folder, local in names.items() if local}


def row(name: str, modules: list[Module]) -> str:
    """Return the line of the table for the group *name*."""
    functions = [function for module in modules for function in module.functions]
    counts = [function.own_lines for function in functions]
    cells: list[object] = [len(modules), len(find_tiny_modules(modules)[0])]
    cells += [sum(module.code for module in modules)]
    cells += [len(counts), f"{median(counts or [0]):g}", percentile_95(counts)]
    cells += [max((function.all_lines for function in functions), default=0)]
    return f"{name:20}" + "".join(f"{cell:>10}" for cell in cells)


def main(packages: Path) -> int:
    """Print the sizes of the code under *packages*; return 1 if a bound is exceeded, else 0."""
    groups = measure_all(packages)
    everything = [module for modules in groups.values() for module in modules]
    header = ["modules", "tiny", "code", "functions", "median", "95 %", "longest"]
    print(f"{'':20}" + "".join(f"{title:>10}" for title in header))
    rows = {**groups, "all": everything}
    for name, modules in rows.items():
        print(row(name, modules))
    means = mean_name_lengths(everything)
    print(f"\nmean length of local names, must be at least {MIN_MEAN_LENGTH:g} characters:")
    print(*(f"    {folder:26}{length:.2f}" for folder, length in means.items()), sep="\n")
    exceeded = dict.fromkeys(
        line for name, modules in rows.items() for line in excesses(name, modules)
    )
    exceeded |= dict.fromkeys(tiny_excess(everything))
    exceeded |= {
        f"{folder}: local names have {length:.2f} characters on average, "
        f"fewer than {MIN_MEAN_LENGTH:g}": None
        for folder, length in means.items()
        if length < MIN_MEAN_LENGTH
    }
    print(*(["\nout of bounds:", *exceeded] if exceeded else []), sep="\n")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1] / "packages"))
