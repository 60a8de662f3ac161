"""Statements for PostgreSQL name their parameters."""

import pytest
from apcore_a2a_server.store.postgres.database import Statement


def test_a_name_becomes_a_number_wherever_it_is_and_a_cast_stays() -> None:
    statement = Statement(
        "SELECT :b::int, (:a), ':' FROM t WHERE x = :b AND y=ANY(:a_list::text[])"
    )
    assert statement.text == "SELECT $1::int, ($2), ':' FROM t WHERE x = $1 AND y=ANY($3::text[])"
    assert statement.arguments({"a": 1, "b": 2, "a_list": ["c"], "d": 3}) == [2, 1, ["c"]]


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="task_id"):
        Statement("SELECT :task_id").arguments({})
