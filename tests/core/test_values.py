"""Inputs and outputs as JSON values."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from a2a.types import StreamResponse
from apcore import ModuleError
from apcore_a2a_core import (
    OutputError,
    PartError,
    from_sdk,
    narrow,
    to_json,
    to_sdk,
)
from apcore_a2a_core.data import Artifact, Message, Part, Task, TaskStatus
from apcore_a2a_core.records import LARGE_MESSAGE, estimated_size, is_large_message
from apcore_a2a_core.values import (
    LONG_TEXT,
    MAX_DEPTH,
    MAX_SAFE,
    dump_json,
    is_large_or_long,
    load_json,
    text_size,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-MAX_SAFE, MAX_SAFE) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


@given(json_values)
def test_to_json_returns_an_equal_value_for_json(value: Any) -> None:
    assert to_json(value) == value


@given(json_values)
def test_narrow_changes_integral_floats_to_equal_integers(value: Any) -> None:
    assert narrow(value) == value
    assert not any(
        isinstance(x, float) and x.is_integer() and abs(x) <= MAX_SAFE
        for x in leaves(narrow(value))
    )


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return [leaf for item in items for leaf in leaves(item)]
    return [value]


def test_booleans_stay_booleans_in_both_directions() -> None:
    assert [*map(type, narrow([True, 0, 1.0]))] == [bool, int, int]
    assert [type(x) for x in to_json([True, 1, 1.0])] == [bool, int, int]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(2.0**53, 2**53), (-(2.0**53), -(2**53)), (2.0**54, 2.0**54), (0.5, 0.5), (1e300, 1e300)],
)
def test_floats_become_integers_only_where_doubles_are_exact(
    number: float, expected: float
) -> None:
    assert repr(narrow(number)) == repr(expected)
    assert repr(to_json(number)) == repr(expected)


def test_narrow_does_not_change_its_argument() -> None:
    original = {"a": [1.0]}
    assert narrow(original) == {"a": [1]}
    assert isinstance(original["a"][0], float)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_in_both_directions(number: float) -> None:
    with pytest.raises(PartError, match="finite"):
        narrow({"a": [number]})
    with pytest.raises(OutputError) as caught:
        to_json({"a": [0, number]})
    assert caught.value.path == ".a[1]"


def test_too_many_keys_are_refused_at_any_depth() -> None:
    assert narrow([{"a": 1}, {"b": {"c": 1}}], max_keys=3)
    with pytest.raises(PartError, match="keys"):
        narrow([{"a": 1}, {"b": {"c": 1}}], max_keys=2)


def test_limits_hold_for_an_object_without_arrays_and_objects() -> None:
    assert narrow({"a": 1, "b": 2}, max_keys=2, max_depth=1) == {"a": 1, "b": 2}
    with pytest.raises(PartError, match="keys"):
        narrow({"a": 1, "b": 2}, max_keys=1)
    with pytest.raises(PartError, match="deep"):
        narrow({"a": 1}, max_depth=0)


@pytest.mark.parametrize("kind", [list, dict])
def test_the_maximum_depth_survives_protobuf_in_the_deepest_envelope(kind: type) -> None:
    value = nested(MAX_DEPTH, kind)
    parts = [Part(data=narrow(value))]
    status = TaskStatus(message=Message(parts=[Part(data=to_json(value))]))
    task = Task(artifacts=[Artifact(parts=parts)], status=status)
    wire = StreamResponse(task=to_sdk(task)).SerializeToString()
    assert from_sdk(StreamResponse.FromString(wire).task) == task


@pytest.mark.parametrize("kind", [list, dict])
def test_a_greater_depth_is_refused_in_both_directions(kind: type) -> None:
    value = nested(MAX_DEPTH + 1, kind)
    with pytest.raises(PartError, match="deep"):
        narrow(value)
    with pytest.raises(OutputError, match="deep"):
        to_json(value)


def test_the_maximum_depth_is_configurable() -> None:
    assert narrow([[]], max_depth=2) == [[]]
    with pytest.raises(PartError):
        narrow([[]], max_depth=1)
    with pytest.raises(OutputError):
        to_json([[]], max_depth=1)


def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with pytest.raises(OutputError, match="endless"):
        to_json(cycle)


class Color(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Point:
    x: int
    tags: tuple[str, ...]


class Model(BaseModel):
    when: date
    point: Point


class Title(str):
    def __str__(self) -> str:
        return "not the text"


class Score(int):
    pass


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, None),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (frozenset({"a"}), ["a"]),
        (OrderedDict(a=1), {"a": 1}),
        (OrderedDict(a=b"\xff\xfe"), {"a": "//4="}),
        ((b"\xff\xfe",), ["//4="]),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(minutes=1.5), 90),
        (Color.RED, "red"),
        (Size.BIG, 3),
        (Mood.GOOD, "good"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (Path("a/b"), "a/b"),
        (b"\x00\x01", "AAE="),
        (bytearray(b"a"), "YQ=="),
        (b"\xff\xfe", "//4="),
        (Title("text"), "text"),
        (Score(7), 7),
        (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
        (
            Model(when=date(2026, 1, 2), point=Point(1, ())),
            {"when": "2026-01-02", "point": {"x": 1, "tags": []}},
        ),
        ({}, {}),
        ([], []),
        (
            {1: "a", None: "b", Color.RED: "c", 1.5: "d"},
            {"1": "a", "None": "b", "red": "c", "1.5": "d"},
        ),
    ],
)
def test_outputs_of_python_modules_are_converted_to_json(output: object, expected: object) -> None:
    assert to_json({"it": output}) == {"it": expected}


def test_integers_are_exact_up_to_4300_digits() -> None:
    big = 10**4299
    assert to_json(big) == narrow(big) == load_json(dump_json(big).decode()) == big
    with pytest.raises(OutputError, match="too long"):
        to_json([10**4301])
    with pytest.raises(ValueError, match="out of range"):
        load_json("1" + "0" * 4300)


class Stubborn(BaseModel):
    raw: bytes


class Hidden:
    def __repr__(self) -> str:
        return "Hidden(password)"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(10**5000, id="a long integer"),
        "\ud800",
        {"\ud800": 1},
        Hidden(),
        Hidden,
        Point,
        Stubborn,
        Stubborn(raw=b"\xff\xfe"),
        {(1, 2): 3},
        {Hidden(): 1},
        (Hidden(),),
        pytest.param(Point(10**5000, ()), id="an object that contains a long integer"),
    ],
)
def test_an_error_names_the_path_of_a_value_but_not_the_value(output: object) -> None:
    with pytest.raises(OutputError) as caught:
        to_json({"rows": [0, output]})
    assert caught.value.path.startswith(".rows[1]")
    assert "$.rows[1]" in str(caught.value)
    assert not any(
        word in str(caught.value) for word in ("Hidden", "password", "10000", "Stubborn")
    )


CONTENTS = st.recursive(
    st.text(max_size=3000) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(CONTENTS, max_size=3), st.text(max_size=3000))
def test_a_message_is_large_if_its_json_is(data: list[Any], text: str) -> None:
    message = Message(parts=[Part(data=data), Part(text=text)])
    assert is_large_message(message) is (len(dump_json(message)) >= LARGE_MESSAGE)


@given(CONTENTS)
def test_the_json_of_a_value_has_at_least_as_many_bytes_as_its_text_size(value: Any) -> None:
    assert text_size(value) <= len(dump_json(value))


@pytest.mark.parametrize("value", [{1: "a"}, {1: ["a"]}, [{None: {"b": 2}}]])
def test_the_size_of_an_output_that_is_not_json_can_be_computed(value: Any) -> None:
    assert text_size(value) > 0
    assert not is_large_or_long(value)
    assert is_large_or_long([value, "x" * LONG_TEXT])


@pytest.mark.parametrize("value", [{"x" * LONG_TEXT: 1}, {"a": [{"x" * LONG_TEXT: 1}]}])
def test_a_long_member_name_counts_like_a_long_text(value: Any) -> None:
    assert is_large_or_long(value)


def test_the_estimated_size_of_a_task_is_close_to_that_of_its_json() -> None:
    messages = [Message(parts=[Part(text="x" * 100_000), Part(data={"a": ["y" * 50_000]})])]
    task = Task(id="t1", history=messages)
    assert 0.99 < estimated_size(task) / len(dump_json(task)) < 1.01
    assert estimated_size(Task(id="t1")) == len(dump_json(Task(id="t1")))


def test_an_error_at_the_root_has_a_path() -> None:
    with pytest.raises(OutputError) as caught:
        to_json("\ud800")
    assert str(caught.value).endswith("at $")


def test_keys_in_a_path_are_cleaned_and_shortened() -> None:
    with pytest.raises(OutputError) as caught:
        to_json({"a\n" + "b" * 100: math.nan})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_narrowed_floats_pass_the_strict_validation_of_apcore(
    call: Callable[..., object],
) -> None:
    order = to_json({"items": [{"name": "a", "count": 3}]})
    assert call("shop.order", order) == {"total": 1}
    floats = {"items": [{"name": "a", "count": 3.0}]}
    with pytest.raises(ModuleError, match="valid integer"):
        call("shop.order", floats)
    assert call("shop.order", narrow(floats)) == {"total": 1}
