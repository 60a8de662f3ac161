"""Questions of modules and of the agent, answered with text or data."""

import json
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_message_text, new_text_message
from a2a.types import Role, SendMessageRequest
from apcore import ACL, ACLRule, Executor, ModuleError
from apcore_a2a_core.data import Message
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.engine.clients import Slots
from apcore_a2a_server.engine.pauses import Expiries, Pause
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.sqlite import SqliteStore
from pydantic import BaseModel, ConfigDict, Field

from tests.serving import PATIENCE, running

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Peer,
    app_of,
    content_of,
    contents,
    echo,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio


class Booking(BaseModel):
    """The inputs of a booking; the text of a message becomes the city."""

    model_config = ConfigDict(extra="forbid")

    city: str
    guests: int = Field(default=0, le=8)
    day: date | None = None
    meal: Literal["Lunch", "Dinner"] | None = None


def asking_module(question: str, field: str | None = None, **options: Any) -> ActionModule:
    """Return a module that asks until it has *field* (or `answer`), then returns its inputs."""
    schema = options.pop("input_schema", None)

    async def action(inputs: Inputs, context: Any) -> Inputs:
        if not inputs.get(field or "answer"):
            context.services.ask(question, field=field, **options)
        return inputs

    return ActionModule(action, input_schema=schema)


def booking_module(question: str, field: str | None = None, **options: Any) -> ActionModule:
    """Return an asking module that takes the inputs of a booking."""
    return asking_module(question, field, input_schema=Booking, **options)


async def send_parts(peer: Peer, *contents: Any, skill: str = "work", **members: Any) -> Json:
    """Send texts and data, and return the task."""
    parts = [
        peer.part(**{"text" if isinstance(content, str) else "data": content})
        for content in contents
    ]
    params = peer.wire.params(skill, *parts, **members)
    if members.get("taskId"):
        del params["metadata"]
    return (await peer.ask("send", params)).task


def question_of(task: Json) -> tuple[str, Json]:
    """Return the question of a paused task, as text and as data."""
    assert state_of(task) == "input-required"
    text, data = (content_of(part) for part in task["status"]["message"]["parts"])
    return text, data["input"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_text_answer_becomes_the_field_of_the_question(dialect: str) -> None:
    async with serving({"work": asking_module("For which day?", "day")}, dialect) as peer:
        task = await send_parts(peer, {"guests": 2})
        assert question_of(task)[1]["field"] == "day"
        answered = await send_parts(peer, "Friday", taskId=task["id"])
        assert contents(answered) == [{"guests": 2, "day": "Friday"}]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("guests", " 5 ", 5),
        ("day", "2026-11-27", "2026-11-27"),
        ("meal", "dinner", "Dinner"),
        ("meal", '{"meal": "Lunch"}', "Lunch"),
    ],
)
async def test_a_text_answer_is_converted_and_overwrites_no_other_input(
    field: str, text: str, value: Any
) -> None:
    async with serving({"work": booking_module("Which?", field)}) as peer:
        task = await send_parts(peer, "Oslo")
        answered = await send_parts(peer, text, taskId=task["id"])
        assert contents(answered) == [{"city": "Oslo", field: value}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("guests", "five", "The answer must be a whole number"),
        ("guests", "9", "The answer does not fit: guests: "),
        ("day", "Friday", "The answer must be a date, such as 2026-01-31"),
        ("meal", "tea", "The answer must be one of: Lunch, Dinner"),
    ],
)
async def test_a_text_answer_that_does_not_fit_is_asked_for_again_with_the_reason(
    dialect: str, field: str, text: str, problem: str
) -> None:
    async with serving({"work": booking_module("Which?", field)}, dialect) as peer:
        task = await send_parts(peer, "Oslo")
        _, first_data = question_of(task)
        for number in range(2):
            task = await send_parts(peer, text, taskId=task["id"])
            question, data = question_of(task)
            reason, _, repeated = question.partition("\n")
            assert reason.startswith(problem)
            assert repeated == "Which?"
            assert data.pop("problem") == reason
            assert data == first_data
            assert len(task["history"]) == 3 + 2 * number
        valid_text = {"guests": "2", "day": "2026-11-27", "meal": "LUNCH"}[field]
        assert state_of(await send_parts(peer, valid_text, taskId=task["id"])) == "completed"


CALL = {"data": {"id": "call-1", "n": 2**60}, "metadata": {"kind": "call"}}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_additional_parts_follow_a_question_each_time(dialect: str) -> None:
    module = asking_module(
        "How many?", "guests", input_schema=Booking, parts=[CALL, {"text": "Hello"}]
    )
    async with serving({"work": module}, dialect) as peer:
        task = await send_parts(peer, "Oslo")
        for _ in range(2):
            parts = task["status"]["message"]["parts"]
            assert [content_of(part) for part in parts[2:]] == [CALL["data"], "Hello"]
            assert [part.get("metadata") for part in parts[2:]] == [CALL["metadata"], None]
            task = await send_parts(peer, "many", taskId=task["id"])


@pytest.mark.parametrize("parts", ["text", [{}], [{"text": 1}], [{"text": "a", "url": "b"}]])
async def test_malformed_parts_of_a_question_fail_the_task(parts: Any) -> None:
    async with serving({"work": asking_module("How many?", parts=parts)}) as peer:
        assert state_of(await send_parts(peer, {})) == "failed"


async def test_data_that_does_not_fit_is_refused() -> None:
    async with serving({"work": booking_module("When?", "meal", choices=["Lunch"])}) as peer:
        task = await send_parts(peer, "Oslo")
        for wrong in ({"meal": "tea"}, {"meal": "Dinner"}, {"guests": "two"}):
            params = peer.wire.params("work", peer.part(data=wrong), taskId=task["id"])
            assert (await peer.ask("send", params)).code == -32602
        assert await peer.get(task["id"]) == task
        answered = await send_parts(peer, {"meal": "Lunch", "guests": 2}, taskId=task["id"])
        assert contents(answered) == [{"city": "Oslo", "meal": "Lunch", "guests": 2}]


async def test_the_choices_of_a_question_are_listed_and_chosen_by_name_or_number() -> None:
    async with serving(
        {"work": asking_module("When?", "day", choices=("Friday", "Saturday"))}
    ) as peer:
        for text, day in (("saturday", "Saturday"), ("1", "Friday")):
            task = await send_parts(peer, {"guests": 2})
            question, data = question_of(task)
            assert question == "When?\n1. Friday\n2. Saturday"
            assert data["choices"] == ["Friday", "Saturday"]
            task = await send_parts(peer, "Sunday", taskId=task["id"])
            assert question_of(task)[0].startswith(
                "The answer must be one of: Friday, Saturday\nWhen?"
            )
            assert contents(await send_parts(peer, text, taskId=task["id"]))[0]["day"] == day


async def test_choices_that_are_numbers_are_chosen_only_by_value() -> None:
    async with serving({"work": asking_module("How many?", "n", choices=[2, 4])}) as peer:
        task = await send_parts(peer, {})
        assert question_of(task)[0] == "How many?\n- 2\n- 4"
        assert contents(await send_parts(peer, "2", taskId=task["id"])) == [{"n": 2}]


@pytest.mark.parametrize("wrong", [True, "2", 3])
async def test_data_that_is_none_of_the_choices_is_refused(wrong: Any) -> None:
    schema = {"properties": {"n": {"type": ["integer", "boolean", "string"]}}}
    modules = {
        "one": asking_module("How many?", "n", choices=[1, 2]),
        "two": asking_module("How many?", choices=[1, 2], schema=schema),
    }
    async with serving(modules) as peer:
        for skill in modules:
            task = await send_parts(peer, {"x": 1}, skill=skill)
            params = peer.wire.params(skill, peer.part(data={"n": wrong}), taskId=task["id"])
            answer = await peer.ask("send", params)
            assert answer.code == -32602
            assert "The answer must be one of 1, 2" in answer.response.text


async def test_a_choice_is_asked_for_again_even_if_no_input_takes_the_answer() -> None:
    async def action(inputs: Inputs, context: Any) -> Inputs:
        if context.services.answer is None:
            context.services.ask("When?", choices=["Friday", "Saturday"])
        return {"answer": context.services.answer}

    async with serving({"work": ActionModule(action, input_schema=Booking)}) as peer:
        task = await send_parts(peer, "Oslo")
        task = await send_parts(peer, "Sunday", taskId=task["id"])
        assert question_of(task)[1]["problem"] == "The answer must be one of: Friday, Saturday"
        answered = await send_parts(peer, "friday", taskId=task["id"])
        assert contents(answered) == [{"answer": [{"text": "Friday"}]}]


async def test_without_a_matching_input_a_number_becomes_the_choice() -> None:
    async def action(inputs: Inputs, context: Any) -> Inputs:
        if context.services.answer is None:
            context.services.ask("When?", choices=["Friday", {"in": "days"}])
        return {"parts": [*context.services.answer, *context.services.parts]}

    async with serving({"work": ActionModule(action, input_schema=Booking)}) as peer:
        for text, part in (("1", {"text": "Friday"}), ("2", {"data": {"in": "days"}})):
            task = await send_parts(peer, "Oslo")
            answered = await send_parts(peer, text, taskId=task["id"])
            assert contents(answered) == [{"parts": [part, part]}]


async def test_the_reason_why_an_answer_does_not_fit_is_short() -> None:
    schema = {"properties": {"a": {"type": "object", "additionalProperties": False}}}
    async with serving({"work": asking_module("Which?", schema=schema)}) as peer:
        task = await send_parts(peer, {"x": 1})
        task = await send_parts(peer, json.dumps({"a": {"n" * 5000: 1}}), taskId=task["id"])
        assert len(question_of(task)[1]["problem"]) < 600


async def test_a_text_answer_to_a_question_without_a_field_becomes_the_input_answer() -> None:
    async with serving({"work": asking_module("What is your name?")}) as peer:
        task = await send_parts(peer, "hi")
        answered = await send_parts(peer, "Ann", "Lee", taskId=task["id"])
        assert contents(answered) == [{"text": "hi", "answer": "Ann\nLee"}]


async def test_a_text_answer_that_fits_no_input_is_in_the_parts_of_the_message() -> None:
    async def action(inputs: Inputs, context: Any) -> Inputs:
        if not context.services.history:
            raise ModuleError("INPUT_REQUIRED", "Which?")
        return {"inputs": inputs, "parts": context.services.parts}

    async with serving({"work": ActionModule(action, input_schema=Booking)}) as peer:
        task = await send_parts(peer, "Oslo")
        answered = await send_parts(peer, "the second", taskId=task["id"])
        assert contents(answered) == [
            {"inputs": {"city": "Oslo"}, "parts": [{"text": "the second"}]}
        ]


class Payment(BaseModel):
    amount: float = Field(gt=0)
    to: str = "us"


async def test_the_schema_of_a_question_converts_and_checks_the_answer() -> None:
    modules = {
        "fields": asking_module("How much?", schema=Payment),
        "field": asking_module("How much?", "n", schema={"type": "integer", "minimum": 1}),
        "answer": asking_module("How much?", schema={"type": "integer"}),
    }
    async with serving(modules) as peer:
        task = await send_parts(peer, {"answer": None}, skill="fields")
        assert question_of(task)[1]["schema"]["properties"]["amount"]["type"] == "number"
        for wrong in ("much", "-1", '{"amount": "much"}'):
            task = await send_parts(peer, wrong, taskId=task["id"])
            assert question_of(task)[0].startswith("The answer ")
        params = peer.wire.params("fields", peer.part(data={"amount": -1}), taskId=task["id"])
        assert (await peer.ask("send", params)).code == -32602
        task = await send_parts(peer, "2.5", taskId=task["id"])
        assert state_of(task) == "input-required"  # valid, but the module waits for `answer`
        for skill, name in (("field", "n"), ("answer", "answer")):
            task = await send_parts(peer, {"x": 1}, skill=skill)
            task = await send_parts(peer, "few", taskId=task["id"])
            assert question_of(task)[1]["problem"] == "The answer must be a whole number"
            assert contents(await send_parts(peer, "7", taskId=task["id"])) == [{"x": 1, name: 7}]


async def test_a_question_for_several_inputs_takes_json() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a", "b"]}

    async def action(inputs: Inputs, context: Any) -> Inputs:
        if "a" not in inputs:
            context.services.ask("Which?", schema=schema)
        return inputs

    async with serving({"work": ActionModule(action)}) as peer:
        task = await send_parts(peer, {})
        task = await send_parts(peer, "1 and 2", taskId=task["id"])
        assert (
            question_of(task)[1]["problem"] == "The answer must be JSON with: a (integer), b (any)"
        )
        answered = await send_parts(peer, '{"a": 1, "b": [2]}', taskId=task["id"])
        assert contents(answered) == [{"a": 1, "b": [2]}]


@pytest.mark.parametrize(
    "details",
    [
        {"field": 5},
        {"field": ""},
        {"choices": []},
        {"choices": "ab"},
        {"choices": [object()]},
        {"schema": True},
    ],
)
async def test_a_malformed_question_fails_the_task(details: Json) -> None:
    async def action(inputs: Inputs, context: Any) -> Inputs:
        raise ModuleError("INPUT_REQUIRED", "Which?", details)

    async with serving({"work": ActionModule(action)}) as peer:
        assert state_of(await send_parts(peer, {})) == "failed"


async def test_a_question_whose_details_are_no_object_fails_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class TextDetailsError(Exception):
        code = "INPUT_REQUIRED"
        details = "not an object"

    async def action(inputs: Inputs, context: Any) -> Inputs:
        raise TextDetailsError

    async with serving({"work": ActionModule(action)}) as peer:
        assert state_of(await send_parts(peer, {})) == "failed"
    events = [record.__dict__.get("event") for record in caplog.records]
    assert "run_crashed" not in events


async def test_of_an_answer_in_text_and_data_only_the_data_counts() -> None:
    async with serving({"work": asking_module("When?", "day")}) as peer:
        task = await send_parts(peer, {"guests": 2})
        answered = await send_parts(peer, "on this day", {"day": "Friday"}, taskId=task["id"])
        assert contents(answered) == [{"guests": 2, "day": "Friday"}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_does_not_fit_is_asked_for_again_in_a_stream(dialect: str) -> None:
    async with serving({"work": asking_module("How many?", "n", choices=[1, 2])}, dialect) as peer:
        task = await send_parts(peer, {})
        async with peer.stream("work", peer.part(text="3"), taskId=task["id"]) as stream:
            frames = await stream.rest()
        assert frames[-1].state == "input-required"
        assert frames[-1].status_text.startswith("The answer must be one of: 1, 2\n")


async def test_a_client_of_the_sdk_can_answer_with_text() -> None:
    registry = registry_of({"work": booking_module("For which day?", "day")})
    with running(registry) as url:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            config = ClientConfig(httpx_client=http, streaming=False)
            client = await create_client(url, config)

            async def send(text: str, **ids: str) -> Any:
                message = new_text_message(text, role=Role.ROLE_USER, **ids)
                request = SendMessageRequest(message=message)
                return [response async for response in client.send_message(request)][-1].task

            task = await send("Oslo")
            for text in ("Friday", "2026-11-27"):
                assert get_message_text(task.status.message).endswith("For which day?")
                task = await send(text, task_id=task.id, context_id=task.context_id)
    (part,) = task.artifacts[0].parts
    assert dict(part.data.struct_value) == {"city": "Oslo", "day": "2026-11-27"}


# Which skill?


def shop() -> dict[str, Any]:
    return {
        "math.add": ActionModule(echo, input_schema=Payment),
        "text.echo": ActionModule(echo),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }


async def send_to_any(peer: Peer, *parts: Json, **members: Any) -> Any:
    """Send a message that names no skill."""
    params = peer.wire.params("", *parts, **members)
    del params["metadata"]
    return await peer.ask("send", params)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_only_skill_gets_messages_without_a_skill_id(dialect: str) -> None:
    async with serving({"text.echo": ActionModule(echo)}, dialect) as peer:
        answer = await send_to_any(peer, peer.part(text="hi"))
        assert contents(answer.task) == [{"text": "hi"}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_error_for_a_message_without_a_skill_lists_the_skills(dialect: str) -> None:
    async with serving(shop(), dialect) as peer:
        answer = await send_to_any(peer, peer.part(text="hi"))
        assert answer.code == -32602
        assert "metadata.skillId" in answer.response.text
        assert "--default-skill" in answer.response.text
        for skill_id in shop():
            assert skill_id in answer.response.text


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_error_for_an_unknown_skill_suggests_similar_ids(dialect: str) -> None:
    async with serving(shop(), dialect) as peer:
        answer = await peer.send("math.ad", peer.part(data={}))
        assert answer.code == -32601
        assert "Skill not found: math.ad (did you mean math.add?)" in answer.response.text
        assert "text.echo" not in answer.response.text
        answer = await peer.send("quite.different", peer.part(data={}))
        assert "did you mean" not in answer.response.text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("answer", ["text.echo", "Text Echo", "TEXT.ECHO.", "{number}"])
async def test_the_client_is_asked_which_skill_to_call(dialect: str, answer: str) -> None:
    async with serving(shop(), dialect, default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        question, data = question_of(task)
        lines = question.splitlines()
        assert lines[0] == "Which skill?"
        assert data["choices"] == [*sorted(shop())]
        assert data["data"]["skills"][0] == {"id": "math.add", "name": "Math Add"}
        number = next(line for line in lines if "text.echo (Text Echo)" in line).partition(".")[0]
        text = answer.format(number=number)
        answered = (await send_to_any(peer, peer.part(text=text), taskId=task["id"])).task
        assert contents(answered) == [{"text": "hi"}]
        assert answered["metadata"]["skillId"] == "text.echo"


@pytest.mark.parametrize("answer", ["work_70", "Work 70", "WORK_7", "7"])
async def test_a_question_lists_some_of_many_skills_and_any_can_be_chosen(answer: str) -> None:
    modules = {f"work_{number}": ActionModule(echo) for number in range(1, 81)}
    async with serving(modules, default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        question, data = question_of(task)
        assert len(question.splitlines()) == 52
        assert question.endswith("\n… and 30 more")
        assert [skill["id"] for skill in data["data"]["skills"]] == data["choices"]
        assert (len(data["choices"]), data["data"]["more"]) == (50, 30)
        answered = (await send_to_any(peer, peer.part(text=answer), taskId=task["id"])).task
        chosen = data["choices"][6] if answer == "7" else answer.lower().replace(" ", "_")
        assert answered["metadata"]["skillId"] == chosen


async def test_a_question_lists_the_current_names_of_skills() -> None:
    modules = {name: ActionModule(echo) for name in ("one", "two")}
    registry = registry_of(modules)
    async with serving(registry, default_skill="ask") as peer:
        for alias in ("First", "Second"):
            registry.unregister("one")
            registry.register("one", ActionModule(echo, display={"a2a": {"alias": alias}}))
            task = (await send_to_any(peer, peer.part(text="hi"))).task
            assert question_of(task)[1]["data"]["skills"][0] == {"id": "one", "name": alias}


async def test_the_skill_may_be_chosen_with_data_or_metadata() -> None:
    async with serving(shop(), default_skill="ask") as peer:
        for by_metadata in (True, False):
            task = (await send_to_any(peer, peer.part(data={"amount": 2}))).task
            if by_metadata:
                answer = await peer.send("math.add", peer.part(text="this"), taskId=task["id"])
            else:
                part = peer.part(data={"skillId": "math.add"})
                answer = await send_to_any(peer, part, taskId=task["id"])
            assert contents(answer.task) == [{"amount": 2}]


async def test_an_answer_that_chooses_no_skill_is_asked_for_again() -> None:
    async with serving(shop(), default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        problems = {
            "nope": "The answer names no skill of this agent",
            "9": "The answer names no skill of this agent",
            "math.add": "The message does not fit math.add: amount must be a number; the skill ",
        }
        for text, problem in problems.items():
            task = (await send_to_any(peer, peer.part(text=text), taskId=task["id"])).task
            assert question_of(task)[0].startswith(problem)
        answered = (await send_to_any(peer, peer.part(text="text.echo"), taskId=task["id"])).task
        assert contents(answered) == [{"text": "hi"}]


async def test_a_name_shared_by_several_skills_chooses_none_of_them() -> None:
    modules = {"math.add": ActionModule(echo), "math_add": ActionModule(echo)}
    async with serving(modules, default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        task = (await send_to_any(peer, peer.part(text="Math Add"), taskId=task["id"])).task
        assert (
            question_of(task)[1]["problem"]
            == "The answer names several skills: choose one by its id"
        )
        answered = (await send_to_any(peer, peer.part(text="math_add"), taskId=task["id"])).task
        assert answered["metadata"]["skillId"] == "math_add"


async def test_a_chosen_skill_asks_for_approval() -> None:
    async with serving(shop(), default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        task = (await send_to_any(peer, peer.part(text="pay"), taskId=task["id"])).task
        text = content_of(task["status"]["message"]["parts"][0])
        assert text.startswith("Approval required for module pay")
        answered = (await send_to_any(peer, peer.part(text="yes"), taskId=task["id"])).task
        assert contents(answered) == [{"text": "hi"}]


async def test_the_chosen_skill_is_stored_with_the_task(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with serving(shop(), default_skill="ask", task_store=SqliteStore(path)) as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
    async with serving(shop(), default_skill="ask", task_store=SqliteStore(path)) as peer:
        await send_to_any(peer, peer.part(text="pay"), taskId=task["id"])
    async with serving(shop(), task_store=SqliteStore(path)) as peer:
        record = await peer.agent.setup.tasks.get(task["id"])
        assert record is not None
        assert record.skill == "pay"
        wrong = await peer.send("text.echo", peer.part(text="yes"), taskId=task["id"])
        assert wrong.code == -32602
        answered = (await send_to_any(peer, peer.part(text="yes"), taskId=task["id"])).task
        assert contents(answered) == [{"text": "hi"}]


async def test_a_task_that_waits_for_its_skill_can_be_canceled_and_expires() -> None:
    async with serving(shop(), default_skill="ask", input_timeout=0.05) as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        await peer.until(task["id"], "failed")
    async with serving(shop(), default_skill="ask") as peer:
        task = (await send_to_any(peer, peer.part(text="hi"))).task
        assert (await peer.ask("cancel", {"id": task["id"]})).state == "canceled"
        refused = await send_to_any(peer, peer.part(text="text.echo"), taskId=task["id"])
        assert refused.code == -32004


async def test_only_skills_that_the_caller_may_call_are_listed() -> None:
    rules = [ACLRule(["*"], ["text.echo", "pay"], "allow")]
    with closing(Executor(registry_of(shop()), acl=ACL(rules, "deny"))) as executor:
        async with serving(executor) as peer:
            assert "math.add" not in (await send_to_any(peer, peer.part(text="hi"))).response.text
            answer = await peer.send("math.ad", peer.part(text="hi"))
            assert "did you mean" not in answer.response.text
        async with serving(executor, default_skill="ask") as peer:
            task = (await send_to_any(peer, peer.part(text="hi"))).task
            assert question_of(task)[1]["choices"] == ["pay", "text.echo"]
            task = (await send_to_any(peer, peer.part(text="math.add"), taskId=task["id"])).task
            assert question_of(task)[1]["problem"] == "The answer names no skill of this agent"


def test_a_skill_with_the_id_ask_cannot_be_the_default_skill() -> None:
    registry = registry_of({"ask": ActionModule(echo), "work": ActionModule(echo)})
    with pytest.raises(OptionError, match="rename"):
        app_of(registry, default_skill="ask")
    assert app_of(registry)


async def test_the_expiry_of_an_earlier_pause_does_not_stop_the_timer_of_a_later_pause() -> None:
    slots = Slots(("tasks", "wait for an answer"), 10)
    tasks = LiveTasks(InMemoryTaskStore())
    expiries = Expiries(tasks, slots, lambda message, pause, principal: None)
    earlier, later = (
        Pause(id=name, skill_id="work", inputs={}, expires=0.0) for name in ("first", "second")
    )
    expiries.schedule("task", later, PATIENCE, "client")
    await expiries.expire(Message(task_id="task"), earlier, "")
    assert len(slots) == 1
    await expiries.expire(Message(task_id="task"), later, "")
    assert len(slots) == 0
