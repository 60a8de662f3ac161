"""Validation takes bounded time, whatever the schema and the input are.

Without that, some of these tests would not end: the patterns take Python's `re` years.
"""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from apcore import Config, Executor, SchemaLoader, SchemaValidationError
from apcore_a2a_core.values import LARGE
from apcore_a2a_server import Limits
from apcore_a2a_server.modules.core_schemas import depth_limit
from apcore_a2a_server.modules.schema_cache import MAX_ERRORS
from apcore_a2a_server.modules.validation import (
    TOO_LONG,
    LinearSchema,
    RehearsedSchema,
    install_stand_ins,
)
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic import Json as JsonText
from typing_extensions import TypedDict

from .checking_client import Json
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Peer,
    always,
    app_of,
    contents,
    echo,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio

EVIL = "^(a+)+$"
FITS, EVIL_TEXT = "aaaa", "a" * 60 + "!"
"""A text that matches the pattern, and one with which Python's `re` never ends."""


def schema_of(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def text_matching(pattern: str) -> Json:
    return schema_of(text={"type": "string", "pattern": pattern})


def module_for(schema: Any) -> ActionModule:
    """Return a module that takes inputs of a schema, and returns them."""
    return ActionModule(echo, input_schema=schema)


async def fields(peer: Peer, skill: str, data: Json) -> list[str]:
    """Send invalid data; return the fields that are refused."""
    answer = await peer.send(skill, peer.part(data=data))
    assert answer.code == -32602, answer.body
    return answer.fields


async def state(peer: Peer, skill: str, data: Json) -> str:
    return (await peer.send(skill, peer.part(data=data))).state


# Patterns


class WithPattern(BaseModel):
    text: str = Field(pattern=EVIL)


PLACES: dict[str, tuple[Any, Callable[[str], Json]]] = {
    "a property": (text_matching(EVIL), lambda text: {"text": text}),
    "a model": (WithPattern, lambda text: {"text": text}),
    "an item": (
        schema_of(list={"type": "array", "items": {"pattern": EVIL}}),
        lambda text: {"list": [text]},
    ),
    "an alternative": (
        schema_of(text={"anyOf": [{"type": "null"}, {"pattern": EVIL}]}),
        lambda text: {"text": text},
    ),
    "a reference": (
        {**schema_of(text={"$ref": "#/$defs/text"}), "$defs": {"text": {"pattern": EVIL}}},
        lambda text: {"text": text},
    ),
    "a name": ({"type": "object", "propertyNames": {"pattern": EVIL}}, lambda text: {text: 1}),
    "a pattern of names": (
        {"type": "object", "patternProperties": {EVIL: {}}, "additionalProperties": False},
        lambda text: {text: 1},
    ),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_pattern_that_backtracks_in_python_is_matched_at_once(place: str) -> None:
    schema, inputs = PLACES[place]
    async with serving({"work": module_for(schema)}) as peer:
        assert await state(peer, "work", inputs(FITS)) == "completed"
        assert await fields(peer, "work", inputs(EVIL_TEXT)) != []


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "REST"])
async def test_a_refused_text_is_reported_with_its_field(dialect: str) -> None:
    async with serving({"work": module_for(text_matching(EVIL))}, dialect) as peer:
        assert await fields(peer, "work", {"text": EVIL_TEXT}) == ["text"]


async def test_a_stream_an_answer_and_a_call_that_needs_approval_are_checked_too() -> None:
    async def ask(inputs: Inputs, context: Any) -> Inputs:
        if inputs["text"] != "aa":
            context.services.ask("Which text?", field="text")
        return inputs

    modules = {
        "work": module_for(text_matching(EVIL)),
        "ask": ActionModule(ask, input_schema=text_matching(EVIL)),
        "pay": ActionModule(echo, input_schema=text_matching(EVIL), annotations=NEEDS_APPROVAL),
    }
    async with serving(modules) as peer:
        evil = peer.part(data={"text": EVIL_TEXT})
        params = peer.wire.params("work", evil)
        assert (await peer.ask("stream", params)).code == -32602
        assert (await peer.send("pay", evil)).code == -32602
        task = (await peer.send("ask", peer.part(data={"text": FITS}))).task
        assert (await peer.send("ask", evil, taskId=task["id"])).code == -32602
        answer = await peer.send("ask", peer.part(data={"text": "aa"}), taskId=task["id"])
        assert answer.state == "completed"


async def test_an_output_is_checked_in_bounded_time() -> None:
    module = ActionModule(echo, output_schema=text_matching(EVIL))
    async with serving({"work": module}) as peer:
        assert await state(peer, "work", {"text": FITS}) == "completed"
        assert await state(peer, "work", {"text": EVIL_TEXT}) == "failed"


async def test_a_call_of_an_internal_module_is_checked_in_bounded_time() -> None:
    async def call(inputs: Inputs, context: Any) -> Inputs:
        output: Inputs = await context.executor.call_async("system.inner", inputs, context)
        return output

    registry = registry_of({"outer": ActionModule(call)})
    registry.register_internal("system.inner", module_for(text_matching(EVIL)))
    async with serving(registry) as peer:
        assert await state(peer, "outer", {"text": FITS}) == "completed"
        assert await state(peer, "outer", {"text": EVIL_TEXT}) == "failed"


async def test_a_model_that_apcore_makes_from_a_schema_is_checked_in_bounded_time() -> None:
    source = schema_of(mail={"type": "string", "format": "email"}, text={"pattern": EVIL})
    model = SchemaLoader(Config()).generate_model(source, "Made")
    async with serving({"work": module_for(model)}) as peer:
        assert await state(peer, "work", {"mail": "x@" + "." * 200_000 + "@"}) == "completed"
        assert await fields(peer, "work", {"text": EVIL_TEXT}) == ["text"]


# Warnings at the start


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    events = (record for record in caplog.records if hasattr(record, "event"))
    return [
        record.getMessage() for record in events if vars(record)["event"] == "pattern_backtracks"
    ]


@pytest.mark.parametrize(
    "pattern", [EVIL, "^[a-z]{1,20}$", r"\d+", "(?i)x", r"\p{L}+", "^(?:a|b)*$"]
)
def test_a_pattern_that_is_matched_in_linear_time_causes_no_warning(
    caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    app_of(registry_of({"work": module_for(text_matching(pattern))}))
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    "pattern", ["^(?=a)(a|aa)+$", "^(?!x)(a|aa)+$", r"^(a|aa)+\1$", "(?<!b)(a|aa)+$"]
)
async def test_a_pattern_that_backtracks_causes_a_warning_and_gets_limited_steps(
    caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    async with serving({"work": module_for(text_matching(pattern))}) as peer:
        (warning,) = warnings(caplog)
        assert "Skill work: " in warning
        assert pattern in warning
        assert "10000 steps" in warning
        assert await state(peer, "work", {"text": "aaaa"}) == "completed"
        assert await fields(peer, "work", {"text": "aa" * 30 + "!"}) == ["text"]


class PythonEngine(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    text: str = Field(pattern="^(?=a)(a+)+$")


@pytest.mark.parametrize("schema", [text_matching("(?P<x>^)(a+)+\\Z"), PythonEngine])
async def test_a_pattern_that_only_python_matches_causes_a_warning_and_is_matched_in_a_process(
    caplog: pytest.LogCaptureFixture, schema: Any
) -> None:
    async with serving({"work": module_for(schema)}) as peer:
        (warning,) = warnings(caplog)
        assert "Skill work: " in warning
        assert "(a+)+" in warning
        assert "a separate process" in warning
        assert await state(peer, "work", {"text": FITS}) == "completed"
        assert await fields(peer, "work", {"text": "b"}) == ["text"]
        answer = await peer.send("work", peer.part(data={"text": EVIL_TEXT}))
        assert answer.code == -32602
        assert "Takes too long to check" in answer.response.text


Backtracking = Annotated[str, Field(pattern=re.compile(EVIL))]
AnyCase = Annotated[str, Field(pattern=re.compile(EVIL, re.IGNORECASE))]


class Flags(BaseModel):
    text: AnyCase


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    text: Backtracking = Field(alias="alias")


class TwoAliases(BaseModel):
    text: Backtracking = Field(validation_alias=AliasChoices("first", "second"))


class InJson(BaseModel):
    json_text: JsonText[list[Backtracking]]


class InNestedJson(BaseModel):
    json_text: JsonText[list["int | Backtracking | InNestedJson"]]


class NamesInJson(BaseModel):
    json_text: JsonText[dict[str, Backtracking]]


class OtherSchema(BaseModel):
    text: Backtracking = Field(json_schema_extra={"pattern": "a"})


class NoSchema(BaseModel):
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.clear())
    text: Backtracking


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    text: Backtracking


class Deferred(BaseModel):
    model_config = ConfigDict(defer_build=True)
    text: AnyCase

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> Json:
        return schema_of(text={})


class Recursive(BaseModel):
    items: list["Recursive"] = []
    type: AnyCase | None = None


class Entry(TypedDict):
    text: Annotated[str, Field(pattern=EVIL, json_schema_extra={"pattern": "a"})]


class Entries(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    items: list[Entry]
    others: list[Entry] = []


class Names(BaseModel):
    named: dict[AnyCase, int]


LONG = "a" * 27 + "!"
"""A text that takes Python's `re` some seconds."""
MODEL_PLACES: dict[str, tuple[type[BaseModel], Json, Json]] = {
    "flags": (Flags, {"text": "aA"}, {"text": LONG.upper()}),
    "the name of a field with an alias": (ByName, {"text": "a"}, {"text": LONG}),
    "the second alias": (TwoAliases, {"second": "a"}, {"second": LONG}),
    "JSON": (InJson, {"json_text": '["a"]'}, {"json_text": f'["{LONG}"]'}),
    "JSON in JSON": (
        InNestedJson,
        {"json_text": json.dumps([1, {"json_text": '["a"]'}])},
        {"json_text": json.dumps([1, {"json_text": f'["{LONG}"]'}])},
    ),
    "repeated names in JSON": (
        NamesInJson,
        {"json_text": '{"k": "a"}'},
        {"json_text": f'{{"k": "{LONG}", "k": "a"}}'},
    ),
    "another JSON Schema": (OtherSchema, {"text": "a"}, {"text": LONG}),
    "no JSON Schema": (NoSchema, {"text": "a"}, {"text": LONG}),
    "whitespace": (Stripped, {"text": " a"}, {"text": f" {LONG}"}),
    "a deferred model": (Deferred, {"text": "a"}, {"text": LONG.upper()}),
    "a recursive model": (
        Recursive,
        {"items": [{"type": "a"}]},
        {"items": [{"items": [{"type": LONG.upper()}]}]},
    ),
    "a type with the model's config": (
        Entries,
        {"items": [{"text": "a"}]},
        {"items": [{"text": LONG}]},
    ),
    "names": (Names, {"named": {"a": 1}}, {"named": {LONG.upper(): 1}}),
}


@pytest.mark.parametrize("place", MODEL_PLACES)
async def test_a_pattern_of_python_is_matched_in_a_process_wherever_the_model_has_it(
    place: str,
) -> None:
    model, valid, attack = MODEL_PLACES[place]
    async with serving({"work": module_for(model)}) as peer:
        assert await state(peer, "work", valid) == "completed"
        answer = await peer.send("work", peer.part(data=attack))
        assert answer.code == -32602
        assert "Takes too long to check" in answer.response.text


async def test_a_pattern_of_an_internal_module_is_matched_in_a_process() -> None:
    async def call(inputs: Inputs, context: Any) -> Inputs:
        try:
            output: Inputs = await context.executor.call_async("system.inner", inputs, context)
        except SchemaValidationError as error:
            return {"errors": error.details["errors"]}
        return output

    registry = registry_of({"outer": ActionModule(call)})
    registry.register_internal("system.inner", module_for(Flags))
    async with serving(registry) as peer:
        for text, output in [("aA", {"text": "aA"}), (LONG.upper(), {"errors": [TOO_LONG]})]:
            answer = await peer.send("outer", peer.part(data={"text": text}))
            assert contents(answer.task) == [output]


def test_a_number_that_a_model_takes_as_text_is_matched_in_a_process() -> None:
    class NumbersAsText(BaseModel):
        model_config = ConfigDict(coerce_numbers_to_str=True)
        text: Annotated[str, Field(pattern=re.compile("^(1+)+$"))]

    schema = RehearsedSchema(NumbersAsText)
    assert schema.model_validate({"text": 11}).text == "11"
    with pytest.raises(SchemaValidationError) as caught:
        schema.model_validate({"text": int("1" * 27 + "2")})
    assert caught.value.details["errors"] == [TOO_LONG]


class Twin(BaseModel):
    inner: "Tree | Twin | None" = None
    name: str = ""


class Tree(BaseModel):
    inner: "Tree | Twin | None" = None
    size: int = 0


class Labeled(BaseModel):
    kind: Literal["labeled"] = "labeled"
    inner: Annotated["Labeled | Other", Field(discriminator="kind")] | None = None


class Other(BaseModel):
    kind: Literal["other"] = "other"
    inner: Annotated["Labeled | Other", Field(discriminator="kind")] | None = None


class Leaf(BaseModel):
    leaf: int | str | list[int]
    inner: "Leaf | None" = None


def nested(levels: int, innermost: Json) -> Json:
    for _ in range(levels):
        innermost = {"inner": innermost}
    return innermost


async def test_values_of_recursive_unions_have_a_maximum_depth() -> None:
    async with serving({"work": module_for(Tree)}) as peer:
        assert await state(peer, "work", nested(9, {"size": 1})) == "completed"
        answer = await peer.send("work", peer.part(data=nested(25, {"size": []})))
        assert answer.code == -32602
        assert "Is nested deeper than 10" in answer.response.text


@pytest.mark.parametrize("model", [Labeled, Leaf, Recursive])
def test_other_recursive_models_have_no_maximum_depth(model: type[BaseModel]) -> None:
    assert depth_limit(model) is None


class Short(BaseModel):
    text: Annotated[str, Field(pattern=re.compile(EVIL), max_length=10)]
    other: Annotated[str, Field(pattern="^[a!]+$")] = ""


async def test_a_text_longer_than_its_field_allows_is_not_matched() -> None:
    async with serving({"work": module_for(Short)}) as peer:
        assert await state(peer, "work", {"text": "a", "other": LONG}) == "completed"
        assert await fields(peer, "work", {"text": LONG}) == ["text"]


async def test_a_debugged_pattern_is_matched_like_any_other() -> None:
    class Debugged(BaseModel):
        text: Annotated[str, Field(pattern=re.compile("^a+$", re.DEBUG))]

    async with serving({"work": module_for(Debugged)}) as peer:
        assert await state(peer, "work", {"text": "a"}) == "completed"
        assert await fields(peer, "work", {"text": "b"}) == ["text"]


def test_an_invalid_schema_without_patterns_is_left_to_apcore(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = module_for(schema_of(text={"type": "string", "required": True}))
    registry = registry_of({"work": module})
    before = module.input_schema
    app_of(registry)
    assert module.input_schema is before
    assert warnings(caplog) == []


# Equal items, and large values


@pytest.mark.parametrize("kind", ["input_schema", "output_schema"])
async def test_20_000_lists_are_found_to_be_unique(kind: str) -> None:
    # lists, because the keys of as many objects would exceed the limit of 5,000
    items = [[number, [number]] for number in range(20_000)]
    schema = schema_of(list={"type": "array", "uniqueItems": True})
    async with serving({"work": ActionModule(echo, **{kind: schema})}) as peer:
        assert await state(peer, "work", {"list": items}) == "completed"
        answer = await peer.send("work", peer.part(data={"list": [*items, items[0]]}))
        assert answer.code == -32602 if kind == "input_schema" else answer.state == "failed"


async def test_only_the_first_violation_of_a_large_input_is_reported() -> None:
    schema = schema_of(list={"type": "array", "items": {"type": "number"}})
    async with serving({"work": module_for(schema)}) as peer:
        assert await fields(peer, "work", {"list": ["x"] * 3}) == ["list.0", "list.1", "list.2"]
        assert await fields(peer, "work", {"list": [*range(LARGE), "x", "y"]}) == [f"list.{LARGE}"]


class Numbers(BaseModel):
    list: list[float]


class IntOrFloat(BaseModel):
    list: list[int | float]


class A(BaseModel):
    text: Backtracking
    a: int


class B(BaseModel):
    text: Backtracking
    b: int


class C(BaseModel):
    text: Backtracking
    c: int


class Alike(BaseModel):
    list: list[A | B | C]


class Knot(BaseModel):
    text: Backtracking = ""
    inner: "Knot | Loop | None" = None


class Loop(BaseModel):
    text: Backtracking = ""
    inner: "Knot | Loop | None" = None
    loop: int = 0


@pytest.mark.parametrize(("count", "reported"), [(MAX_ERRORS, 100), (MAX_ERRORS + 1, 1)])
async def test_more_than_a_thousand_errors_of_a_model_are_only_counted(
    count: int, reported: int
) -> None:
    async with serving({"work": module_for(Numbers)}) as peer:
        answer = await peer.send("work", peer.part(data={"list": ["x"] * count}))
        assert len(answer.fields) == reported
        assert (f"Has {count} errors" in answer.response.text) is (reported == 1)


@pytest.mark.parametrize("schema_cache", [True, False])
async def test_large_values_pass_unchanged(schema_cache: bool) -> None:
    data = {"list": [{"a": number, "b": [str(number)]} for number in range(2000)]}
    schema = schema_of(list={"type": "array", "items": schema_of(a={"type": "integer"})})
    module = ActionModule(echo, input_schema=schema, output_schema=schema)
    limits = Limits(schema_cache=schema_cache)
    async with serving({"work": module}, limits=limits) as peer:
        answer = await peer.send("work", peer.part(data=data))
        assert contents(answer.task) == [data]
        page = (await peer.ask("list", {"includeArtifacts": True})).result
        assert page["totalSize"] == 1
        assert contents(page["tasks"][0]) == [data]
        assert page["tasks"][0]["history"] == answer.task["history"]
        async with peer.stream("work", peer.part(data=data)) as stream:
            assert [frame.parts for frame in await stream.rest() if frame.kind == "artifact"] == [
                [data]
            ]


async def test_pages_of_0_3_hold_as_many_large_tasks_as_small_ones() -> None:
    async with serving({"work": always({"list": [*range(20_000)]})}, "0.3") as peer:
        for _ in range(3):
            await peer.send("work")
        result = (await peer.ask("list", {"limit": 2})).result
        assert len(result["tasks"]) == 2
        assert result["nextCursor"]


# The same violations as in apcore


CASES: list[tuple[Json, list[Any]]] = [
    (schema_of(a={"type": "integer"}), [{"a": 1}, {"a": 1.0}, {"a": 1.5}, {"a": True}, {"a": "1"}]),
    ({"required": ["a", "b"]}, [{}, {"a": 1}, {"a": 1, "b": 2}]),
    ({"additionalProperties": False, "properties": {"a": {}}}, [{"b": 1, "c": 2}, {"a": 1}]),
    ({"additionalProperties": {"type": "number"}}, [{"x~/y": "z"}]),
    ({"patternProperties": {"^x": {"type": "number"}}}, [{"xa": "x"}, {"y": "x"}]),
    ({"minProperties": 1, "maxProperties": 1}, [{}, {"a": 1, "b": 2}]),
    ({"items": {"type": "number"}, "minItems": 2, "maxItems": 3}, [["x"], [1, 2, 3, 4]]),
    ({"uniqueItems": True}, [[1, 1.0], [1, True], [0, False], [{"a": 1}, {"a": 1}], [[1], [1.0]]]),
    ({"contains": {"type": "number"}}, [["a"], [1]]),
    ({"minLength": 2, "maxLength": 3}, ["a", "😀", "😀😀", "abcd"]),
    ({"pattern": "^a$"}, ["a", "b", 1]),
    ({"minimum": 2, "exclusiveMaximum": 4, "multipleOf": 2}, [1, 2, 3, 4, 10**400]),
    ({"enum": [1, "a", None]}, ["b", 1.0, True, None]),
    ({"const": {"a": [1]}}, [{"a": [1]}, {"a": [True]}]),
    ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, [1, 4]),
    ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, [0, 1, 3]),
    ({"allOf": [{"type": "string"}, {"minimum": 3}]}, [1]),
    ({"not": {"type": "number"}}, [1]),
    ({"if": {"type": "number"}, "then": {"minimum": 3}, "else": {"minLength": 3}}, [1, "a"]),
    ({"dependentRequired": {"a": ["b"]}}, [{"a": 1}]),
    ({"unevaluatedProperties": False, "properties": {"a": {}}}, [{"a": 1, "b": 1}]),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}}}, [[[[]]]]),
    ({"type": "string", "format": "email"}, ["x", 1]),
]


def violations(validate: Callable[..., Any], data: Any) -> set[tuple[str, str]]:
    try:
        validate(data, strict=True)
    except SchemaValidationError as error:
        return {(entry["path"], entry["keyword"]) for entry in error.details["errors"]}
    return set()


def cases() -> Iterator[Any]:
    for schema, instances in CASES:
        for data in instances:
            yield pytest.param(schema, data, id=f"{json.dumps(schema)}-{str(data)[:30]}")


@pytest.mark.parametrize(("schema", "data"), [*cases()])
def test_violations_have_the_same_paths_and_keywords_as_those_of_apcore(
    schema: Json, data: Any
) -> None:
    module = registry_of({"work": module_for(schema)}).get("work")
    assert module is not None
    apcore_schema = module.input_schema
    install_stand_ins("work", module)
    assert isinstance(module.input_schema, LinearSchema)
    expected = violations(apcore_schema.model_validate, data)
    assert violations(module.input_schema.model_validate, data) == expected


@pytest.mark.parametrize("schema", [{"$ref": "http://127.0.0.1/x"}, {"$ref": "file:///etc/passwd"}])
def test_a_reference_to_another_document_is_refused(schema: Json) -> None:
    with pytest.raises(ValueError, match="not part of the schema"):
        LinearSchema(schema)


@pytest.mark.parametrize("value", [date(2024, 1, 1), b"x", (1, 2), {1, 2}, {1: 2}, 1j, object()])
def test_an_output_may_have_values_that_json_does_not_have(value: Any) -> None:
    output = {"value": value, "text": "a"}
    schema = LinearSchema(text_matching("^a$"), "Output")
    assert schema.model_validate(output) is output


def test_a_rejected_value_is_not_repeated_in_the_error() -> None:
    with pytest.raises(SchemaValidationError) as caught:
        LinearSchema(text_matching("^a$")).model_validate({"text": "hunter2"})
    assert "hunter2" not in json.dumps(caught.value.to_dict())


@pytest.mark.parametrize("name", ["input_schema", "output_schema"])
def test_a_module_that_cannot_be_modified_keeps_its_schema(name: str) -> None:
    class ReadOnly:
        @property
        def input_schema(self) -> Any:
            return text_matching(EVIL)

        output_schema = input_schema

    module = ReadOnly()
    install_stand_ins("work", module)
    assert getattr(module, name) == text_matching(EVIL)


# Delays of other requests


@pytest.mark.parametrize(("length", "in_thread"), [(1000, False), (100_000, True)])
async def test_long_texts_are_validated_outside_the_event_loop(
    length: int, in_thread: bool
) -> None:
    threads = list[threading.Thread]()

    class ThreadRecorder(BaseModel):
        text: str

        @model_validator(mode="before")
        @classmethod
        def record_thread(cls, data: Any) -> Any:
            threads.append(threading.current_thread())
            return data

    async with serving({"work": module_for(ThreadRecorder)}) as peer:
        assert await state(peer, "work", {"text": "x" * length}) == "completed"
    assert threads
    assert (threading.current_thread() not in threads) is in_thread


@pytest.mark.parametrize("grown", ["inputs", "output"])
async def test_values_that_a_module_lets_grow_are_validated_outside_the_event_loop(
    grown: str,
) -> None:
    threads = list[threading.Thread]()

    class ThreadRecorder(BaseModel):
        text: str = ""

        @model_validator(mode="before")
        @classmethod
        def record_thread(cls, data: Any) -> Any:
            if "text" in data:
                threads.append(threading.current_thread())
            return data

    async def grow(inputs: Inputs, context: Any) -> Inputs:
        if grown == "inputs":
            inputs["text"] = "x" * 100_000
        output: Inputs = await executor.call_async("echo", inputs, context)
        output["text"] = "x" * 100_000
        if grown == "output":
            return output
        return await executor.call_async("echo", output, context)

    echoing = ActionModule(echo, input_schema=ThreadRecorder)
    growing = ActionModule(grow, output_schema=ThreadRecorder)
    registry = registry_of({"echo": echoing, "grow": growing})
    with closing(Executor(registry)) as executor:
        async with serving(executor) as peer:
            assert await state(peer, "grow", {}) == "completed"
    assert threads
    assert threading.current_thread() not in threads


def request_body(skill: str, data: str) -> bytes:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": "HOLE"}]}
    params = {"message": message, "metadata": {"skillId": skill}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return json.dumps(request).replace('"HOLE"', data).encode()


def list_json(items: Any) -> str:
    return json.dumps({"list": items})


LIST = {"type": "array"}
OBJECTS = [{"k": n} for n in range(5000)]
ALTERNATIVES = [{"properties": {"k": {"const": n}}, "required": ["k"]} for n in range(50)]
SKILLS: dict[str, Any] = {
    "any": None,
    "echo": None,
    "pattern": text_matching(EVIL),
    "names": {"type": "object", "patternProperties": {EVIL: {"type": "number"}}},
    "unique": schema_of(list={**LIST, "uniqueItems": True}),
    "numbers": schema_of(list={**LIST, "items": {"type": "number"}}),
    "choice": schema_of(list={**LIST, "items": {"enum": [str(n) for n in range(5000)]}}),
    "objects": schema_of(list={**LIST, "items": {"enum": OBJECTS}}),
    "constants": schema_of(
        list={**LIST, "items": {"anyOf": [{"const": value} for value in OBJECTS[:500]]}}
    ),
    "patterns": schema_of(
        list={**LIST, "items": {"anyOf": [{"pattern": f"^{n}+$"} for n in range(50)]}}
    ),
    "alternatives": schema_of(list={**LIST, "items": {"anyOf": ALTERNATIVES}}),
    "model": Numbers,
    "flags": Flags,
    "alias": ByName,
    "json": InJson,
    "other_schema": OtherSchema,
    "union": IntOrFloat,
    "alike": Alike,
    "knot": Knot,
}
MANY = 95_000
ATTACKS: dict[str, tuple[str, Callable[[], str]]] = {
    "an evil text": ("pattern", lambda: json.dumps({"text": "a" * 28 + "!"})),
    "an evil text of 9 MB": ("pattern", lambda: json.dumps({"text": "a" * 9_000_000 + "!"})),
    "an evil text for a pattern with flags": (
        "flags",
        lambda: json.dumps({"text": "A" * 28 + "!"}),
    ),
    "an evil text under another name": ("alias", lambda: json.dumps({"text": "a" * 28 + "!"})),
    "an evil text in JSON": (
        "json",
        lambda: json.dumps({"json_text": json.dumps(["a" * 28 + "!"])}),
    ),
    "an evil text for another schema": (
        "other_schema",
        lambda: json.dumps({"text": "a" * 28 + "!"}),
    ),
    "evil names": ("names", lambda: json.dumps({"a" * 28 + f"!{n}": 1 for n in range(4000)})),
    "unique objects": ("unique", lambda: list_json([{"a": n} for n in range(3000)])),
    "unique numbers": ("unique", lambda: list_json([*range(50_000)])),
    "fractions": ("numbers", lambda: list_json([n + 0.5 for n in range(MANY)])),
    "no numbers": ("numbers", lambda: list_json(["x"] * MANY)),
    "no numbers for a model": ("model", lambda: list_json(["x"] * MANY)),
    "none of a union": ("union", lambda: list_json(["x"] * MANY)),
    "the same pattern in each choice": ("alike", lambda: list_json([{"text": "a" * 19 + "!"}] * 3)),
    "a pattern in a recursive union": (
        "knot",
        lambda: json.dumps(nested(8, {"text": "a" * 15 + "!"})),
    ),
    "the last object": ("objects", lambda: list_json([{"k": 4999}] * 4500)),
    "the last constant": ("constants", lambda: list_json([{"k": 499}] * 4500)),
    "the last pattern": ("patterns", lambda: list_json(["49"] * MANY)),
    "the last choice": ("choice", lambda: list_json(["4999"] * MANY)),
    "the last alternative": ("alternatives", lambda: list_json([{"k": 49}] * 4500)),
    "no alternative": ("alternatives", lambda: list_json([{"k": 50}] * 4500)),
    "keys": ("any", lambda: json.dumps({f"k{n}": n for n in range(4900)})),
    "a name of 9 MB": ("any", lambda: json.dumps({"a-b " * 2_250_000: 1})),
    "a name of 9 MB that comes back": ("echo", lambda: json.dumps({"a-b " * 2_250_000: 1})),
    "texts": ("any", lambda: list_json(["x" * 95] * MANY)),
    "nested arrays": ("any", lambda: "[" * 4_900_000 + "]" * 4_900_000),
    "arrays": ("any", lambda: '{"list":[' + "[]," * 3_300_000 + "0]}"),
    "members with a space": (
        "any",
        lambda: "{" + ",".join(f'"k{n}" :0' for n in range(800_000)) + "}",
    ),
    "a table": ("any", lambda: json.dumps({"table": "1,2,3\n" * 1_400_000})),
    "a table that comes back": (
        "echo",
        lambda: json.dumps({"table": "1,2,3\n" * 1_400_000}),
    ),
    "deep arrays": ("any", lambda: '{"list":[' + "[" * 25 + "]" * 25 + ",0" * MANY + "]}"),
    "one long integer": ("any", lambda: '{"n":' + "7" * 9_900_000 + "}"),
    "long integers": ("any", lambda: list_json([0]).replace("0", ",".join(["7" * 4299] * 2300))),
    "long fractions": (
        "any",
        lambda: list_json([0]).replace("0", ",".join(["0." + "7" * 9000] * 1000)),
    ),
    "escapes": ("any", lambda: '{"text":"' + "\\ud83d\\ude00" * 800_000 + '"}'),
    "duplicate keys": ("any", lambda: "{" + ",".join(['"k":0'] * MANY) + "}"),
}

HOLD, HOLD_RATIO = 0.1, 4.0
"""Time for which a request may hold up others: seconds, and a multiple of `json.loads`'s time."""


async def longest_hold(peer: Peer, body: bytes) -> float:
    """Return the longest time between two ticks of 1 ms while a request is processed.

    The process's CPU time is measured, which other processes do not add to.
    """
    longest, last = 0.0, time.process_time()
    sending = asyncio.create_task(post(peer, body))
    while not sending.done():
        await asyncio.sleep(0.001)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    await sending
    return longest


async def post(peer: Peer, body: bytes) -> None:
    """Post a body through ASGI: a client in this process would hold up the loop itself."""
    bodies = [body]

    async def receive() -> Any:
        if bodies:
            return {"type": "http.request", "body": bodies.pop()}
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        pass

    headers = [(b"content-type", b"application/json"), (b"a2a-version", b"1.0")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
    await peer.app({**scope, "headers": headers}, receive, send)


def seconds_of_loads(body: bytes) -> float:
    started = time.process_time()
    with suppress(ValueError, RecursionError):
        json.loads(body)
    return time.process_time() - started


@pytest.mark.clock
@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_validation_delays_other_requests(attack: str) -> None:
    async def count(inputs: Inputs, context: Any) -> Inputs:
        return {"count": len(inputs)}

    skill, make_data = ATTACKS[attack]
    modules = {
        name: ActionModule(echo if name == "echo" else count, input_schema=schema)
        for name, schema in SKILLS.items()
    }
    body = request_body(skill, make_data())
    async with serving(modules) as peer:
        await post(peer, request_body(skill, "{}"))
        rounds: list[tuple[float, float]] = []
        for _ in range(5):  # one good round is enough, since the times vary
            seconds = min(seconds_of_loads(body) for _ in range(2))
            allowed = max(HOLD, HOLD_RATIO * seconds)
            rounds.append((await longest_hold(peer, body), allowed))
            if rounds[-1][0] <= allowed:
                return
        pytest.fail(f"it held up the loop (measured, allowed): {rounds}")
