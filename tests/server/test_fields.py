"""Options are declared once, as the fields of dataclasses."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from apcore_a2a_core.dialects import MAX_ITEMS
from apcore_a2a_server import Limits, async_serve, create_app, serve
from apcore_a2a_server.app.options import LOG_LEVELS, ServeSettings, Settings
from apcore_a2a_server.fields import DAY, OptionError, check, option, options_of
from apcore_a2a_server.middleware.logs import LEVELS
from apcore_a2a_server.push import PushSettings
from starlette.applications import Starlette

from .modules import registry


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Options of several kinds."""

    switch: bool = option(False, "A switch.", section="First")
    text: str | None = option(None, "A text.", choices=("some", "other", "text"))
    count: int = option(5, "A number.", low=1, section="Second")
    seconds: float = option(1, "A time.", above=0, high=DAY)
    delays: Sequence[float] = option((1,), "Times.", low=0, high=10, name="waits")
    names: Sequence[str] | None = option(None, "Names.", is_secret=True)
    thing: Any = option(None, "A thing.")

    def __post_init__(self) -> None:
        check(self)


OPTIONS = {item.field: item for item in options_of(Sample, "my_")}


@pytest.mark.parametrize(("function", "settings"), [(serve, ServeSettings), (create_app, Settings)])
def test_the_keywords_are_the_fields(function: Any, settings: Any) -> None:
    source, *keywords = inspect.signature(function).parameters.values()

    assert source.name == "source"
    assert {p.name for p in keywords} == {*settings.__dataclass_fields__}
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in keywords)


@pytest.mark.anyio
async def test_the_keywords_are_typed() -> None:
    modules = registry()

    assert_type(create_app(modules, name="Echo", limits=Limits(max_parts=2)), Starlette)
    with pytest.raises(OptionError, match=r"^max_runs must be a whole number, 1 or more, not '2'$"):
        await async_serve(modules, max_runs="2")  # type: ignore[arg-type]  # wrong on purpose


def test_an_unknown_keyword_is_refused_with_a_suggestion() -> None:
    options: Any = {"max_taks": 1}
    with pytest.raises(
        TypeError, match=r"create_app\(\) has no option 'max_taks' \(did you mean max_tasks"
    ):
        create_app(registry(), **options)


@pytest.mark.parametrize("function", [serve, create_app, async_serve])
def test_the_error_for_wrong_arguments_names_the_function(function: Any) -> None:
    name = function.__name__
    for keyword, hint in {
        "max_taks": "did you mean max_tasks?",
        "max_parts": "did you mean limits=Limits(max_parts=…)?",
        "retries": "did you mean push_notifications=PushSettings(retries=…)?",
    }.items():
        for arguments in ((), (registry(),)):
            with pytest.raises(TypeError) as refused:
                function(*arguments, **{keyword: 1})
            assert str(refused.value) == f"{name}() has no option {keyword!r} ({hint})"
    too_few, too_many = (), (registry(), "name")
    for wrong in (too_few, too_many):
        with pytest.raises(TypeError) as refused:
            function(*wrong)
        expected = f"{name}() takes one positional argument, the source, and keywords"
        assert str(refused.value) == expected


@pytest.mark.parametrize("limits", [5, {"max_parts": 10}, None])
def test_limits_of_another_type_are_refused(limits: Any) -> None:
    with pytest.raises(TypeError, match=r"limits takes Limits\(…\), not (int|dict|NoneType)"):
        create_app(registry(), limits=limits)


def test_the_closest_option_of_the_function_is_suggested() -> None:
    options: Any = {"prot": 1}
    with pytest.raises(
        TypeError, match=r"^serve\(\) has no option 'prot' \(did you mean port\?\)$"
    ):
        serve(registry(), **options)


@pytest.mark.parametrize(
    ("wrong", "must"),
    [
        ({"switch": 1}, "be on or off"),
        ({"text": "any"}, "be some, other or text"),
        ({"text": 5}, "be some, other or text"),
        ({"count": 0}, "be a whole number, 1 or more"),
        ({"count": 1.5}, "be a whole number, 1 or more"),
        ({"count": True}, "be a whole number, 1 or more"),
        ({"count": None}, "be a whole number, 1 or more"),
        ({"seconds": 0}, "be greater than 0 and at most a day"),
        ({"seconds": float("nan")}, "be greater than 0 and at most a day"),
        ({"seconds": 10 * DAY}, "be greater than 0 and at most a day"),
        ({"delays": [1, 11]}, "be a list of numbers from 0 to 10"),
        ({"delays": 1}, "be a list of numbers from 0 to 10"),
        ({"names": "one"}, "be a list of strings"),
        ({"names": [1]}, "be a list of strings"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_field(
    wrong: dict[str, Any], must: str
) -> None:
    with pytest.raises(OptionError) as refused:
        Sample(**wrong)

    [(name, value)] = wrong.items()
    shown = "this value" if name == "names" else repr(value)
    assert str(refused.value) == f"{name} must {must}, not {shown}"


def test_values_within_bounds_are_accepted() -> None:
    values: dict[str, Any] = {"switch": True, "text": "other", "count": 1, "seconds": DAY}
    values |= {"delays": [0, 10], "names": ["one"], "thing": object()}

    assert vars(Sample(**values)) == values


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("switch", "On", True),
        ("switch", False, False),
        ("text", "OTHER", "other"),
        ("count", " 7", 7),
        ("seconds", "1e3", 1000.0),
        ("delays", "1, 2.5 3", [1.0, 2.5, 3.0]),
        ("delays", ["1,2", 3], [1.0, 2.0, 3.0]),
        ("names", "", []),
        ("names", ["my apis/a.yaml", "b,c"], ["my apis/a.yaml", "b,c"]),
        ("names", ("a b", "c"), ["a", "b", "c"]),
    ],
)
def test_values_are_read_from_text_and_yaml(name: str, written: Any, value: Any) -> None:
    assert OPTIONS[name].read(written) == value


@pytest.mark.parametrize(
    ("name", "written", "problem"),
    [
        ("switch", "maybe", "takes on or off, not 'maybe'"),
        ("text", "any", "takes some, other or text, not 'any'"),
        ("count", "1.5", "takes a whole number, not '1.5'"),
        ("count", [1], "takes a whole number, not [1]"),
        ("delays", ["soon"], "takes a list of numbers, not ['soon']"),
        ("names", {"a": 1}, "takes a list of strings, not this value"),
    ],
)
def test_an_unreadable_value_is_shown_unless_it_is_secret(
    name: str, written: Any, problem: str
) -> None:
    with pytest.raises(OptionError) as refused:
        OPTIONS[name].read(written)

    assert refused.value.problem == problem


def test_names_and_sections_follow_from_the_declaration() -> None:
    assert [(item.flag, item.section) for item in OPTIONS.values()] == [
        ("--my-switch", "First"),
        ("--my-text", "First"),
        ("--my-count", "Second"),
        ("--my-seconds", "Second"),
        ("--waits", "Second"),
        ("--my-names", "Second"),
        ("--my-thing", "Second"),
    ]
    assert OPTIONS["count"].variable == "APCORE_A2A_MY_COUNT"
    assert [item.default_text for item in OPTIONS.values()] == ["off", "", "5", "1", "1", "", ""]
    assert OPTIONS["thing"].kind is None


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Sample(names=["hidden"]))
    assert "hidden" not in repr(PushSettings(proxy="http://hidden:3128"))


def test_values_that_are_declared_twice_are_equal() -> None:
    assert (*LEVELS,) == LOG_LEVELS
    assert {item.field: item.high for item in options_of(Limits)}["max_parts"] == MAX_ITEMS
