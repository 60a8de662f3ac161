"""Check that docstrings, comments and names of tests are in plain English.

Docstrings and names of tests may not begin with a relative pronoun ("What is asked …"), and no line
may contain "nobody" or "somebody": write caller, client, replica or operator.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("packages", "tests", "tools", "examples")
PRONOUN = re.compile(r"(test_)?(what|who|whose|whom)(?![a-z])", re.IGNORECASE)
INDEFINITE = re.compile(r"(?<![a-z])(nobody|somebody)(?![a-z])", re.IGNORECASE)

EXEMPT = {
    "tools/language.py": "contains the forbidden words",
}
"""Files that are not checked, each with the reason."""

DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented_nodes(tree: ast.Module) -> Iterator[DocumentedNode]:
    """Yield *tree* and all classes and functions in it."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        if isinstance(node, DocumentedNode):
            yield node
        nodes += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def docstrings(nodes: list[DocumentedNode]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, including those of attributes."""
    for node in nodes:
        for statement in node.body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


def find_problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and a description of each problem in *source*."""
    nodes = [*documented_nodes(ast.parse(source))]
    for line, text in docstrings(nodes):
        if PRONOUN.match(text):
            yield line, f"the docstring begins with {text.split()[0]!r}"
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_") and PRONOUN.match(name):
                    yield node.lineno, f"the name {name} begins with a pronoun"
    for line, text in enumerate(source.splitlines(), 1):
        for word in INDEFINITE.findall(text):
            yield line, f"{word!r}: say who it is"


def main(root: Path) -> int:
    """Print the problems in the code below *root*; return 1 if there are any, else 0."""
    problems = [
        f"{path.relative_to(root)}:{line}: {problem}"
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        if "node_modules" not in path.parts and str(path.relative_to(root)) not in EXEMPT
        for line, problem in find_problems(path.read_text(encoding="utf-8"))
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(problems)} places to rewrite", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
