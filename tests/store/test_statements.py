"""Statements are read from SQL files; for PostgreSQL, names of parameters become numbers."""

import re
from importlib.resources import files
from types import ModuleType

import pytest
from apcore_a2a_server.store import postgres, sqlite
from apcore_a2a_server.store.postgres.database import Statement


def test_parameter_names_become_numbers_and_casts_are_kept() -> None:
    statement = Statement(
        "SELECT :b::int, (:a), ':' FROM t WHERE x = :b AND y=ANY(:a_list::text[])"
    )
    assert statement.text == "SELECT $1::int, ($2), ':' FROM t WHERE x = $1 AND y=ANY($3::text[])"
    assert statement.arguments({"a": 1, "b": 2, "a_list": ["c"], "d": 3}) == [2, 1, ["c"]]


def test_a_missing_argument_is_an_error() -> None:
    with pytest.raises(KeyError, match="task_id"):
        Statement("SELECT :task_id").arguments({})


@pytest.mark.parametrize("package", [postgres, sqlite], ids=lambda package: package.__name__)
def test_every_statement_is_used_and_every_used_statement_exists(package: ModuleType) -> None:
    folder = files(package)
    text = folder.joinpath("queries.sql").read_text("utf-8")
    names = re.findall(r"^-- (\w+): ", text, re.MULTILINE)
    modules = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".py")]
    used = {name for module in modules for name in re.findall(r"\bsql\.(\w+)", module)}
    assert sorted(names) == sorted(used)


def test_a_statement_excludes_the_comments_of_its_block() -> None:
    statement = sqlite.schema.sql.settle
    assert statement.startswith("DELETE FROM outbox\nWHERE task_id = :task_id")
    assert "--" not in statement


def test_an_unknown_statement_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no statement gett"):
        _ = sqlite.schema.sql.gett
