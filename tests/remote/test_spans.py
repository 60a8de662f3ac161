"""Spans of OpenTelemetry: of calls through two agents, webhooks, failures and pauses."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from apcore_a2a_client import PushNotificationConfig
from apcore_a2a_remote import RemoteAgent
from apcore_a2a_server import create_app
from apcore_a2a_server.push import PushSettings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.push.receiver import receiving
from tests.server.inloop import ActionModule, StreamModule, anyio_backend, registry_of, wait_until
from tests.server.modules import Inputs

from .agents import Asker, serving

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio

SECRET = "a text that must not be in any span"
EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def _export_spans() -> None:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture(autouse=True)
def _check_spans() -> Iterator[None]:
    EXPORTER.clear()
    yield
    written = " ".join(span.to_json() for span in EXPORTER.get_finished_spans())
    assert SECRET not in written


def spans(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.parent is not None
    assert parent.context is not None
    return (span.parent.trace_id, span.parent.span_id) == (
        parent.context.trace_id,
        parent.context.span_id,
    )


async def echo(inputs: Inputs, context: Any) -> Inputs:
    return inputs


async def stream_back(inputs: Inputs, context: Any) -> Any:
    yield inputs


@pytest.mark.parametrize("module", [ActionModule(echo), StreamModule(stream_back)])
async def test_a_call_through_two_agents_is_one_tree_of_spans(module: Any) -> None:
    async with (
        serving({"work": module}, otel=True) as behind,
        serving({}, RemoteAgent(behind.url, name="b", expose=True), otel=True) as front,
    ):
        with trace.get_tracer("test").start_as_current_span("client") as root:
            await front.client.call("remote.b.work", {"text": SECRET})
        await wait_until(lambda: len(spans("run")) == 2)
    outer_admit, inner_admit = spans("admit")
    inner_run, outer_run = spans("run")
    (inner_module,), (outer_module,) = (
        spans("execute_tool work"),
        spans("execute_tool remote.b.work"),
    )
    (call,) = spans("invoke_agent b")
    path: list[Any] = [
        root,
        outer_admit,
        outer_run,
        outer_module,
        call,
        inner_admit,
        inner_run,
        inner_module,
    ]
    for parent, child in pairwise(path):
        assert is_child(child, parent), (child.name, parent.name)
    assert (outer_admit.kind, call.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert {span.status.status_code for span in path[1:]} == {StatusCode.UNSET}
    assert inner_run.attributes is not None
    assert inner_run.attributes["a2a.skill.id"] == "work"


async def test_a_webhook_span_is_a_child_of_the_admission_and_has_the_http_status() -> None:
    push = PushSettings(dev=True, retries=())
    with receiving() as receiver:
        async with serving(
            {"work": ActionModule(echo)}, otel=True, push_notifications=push
        ) as agent:
            config = PushNotificationConfig(url=receiver.url)
            await agent.client.send_message({"text": SECRET}, push_config=config)
            await wait_until(lambda: spans("webhook"))
    (admit,) = spans("admit")
    webhook = spans("webhook")[0]
    assert is_child(webhook, admit)
    assert webhook.attributes is not None
    assert webhook.attributes["http.response.status_code"] == 200
    assert webhook.context is not None
    traceparent = receiver.deliveries[0].headers["traceparent"].split("-")
    assert traceparent[1:3] == [
        f"{webhook.context.trace_id:032x}",
        f"{webhook.context.span_id:016x}",
    ]


async def test_a_failure_is_recorded_only_with_its_type() -> None:
    async def fail(inputs: Inputs, context: Any) -> Inputs:
        raise ValueError(SECRET)

    async with serving({"work": ActionModule(fail)}, otel=True) as agent:
        await agent.client.send_message({"text": SECRET})
        await wait_until(lambda: spans("run"))
    (module,), (run,), (admit,) = spans("execute_tool work"), spans("run"), spans("admit")
    assert module.attributes is not None
    assert module.attributes["error.type"] == "ValueError"
    assert (module.status.status_code, module.status.description) == (StatusCode.ERROR, None)
    assert run.status.status_code is StatusCode.ERROR
    assert admit.status.status_code is StatusCode.UNSET
    assert not module.events


async def test_a_resumed_run_continues_the_span_of_the_paused_one() -> None:
    async with serving({"work": Asker()}, otel=True) as agent:
        paused = await agent.client.send_message({})
        await agent.client.reply(paused, "Friday")
        await wait_until(lambda: len(spans("run")) == 2)
    first, second = spans("run")
    assert is_child(second, first)
    assert {span.status.status_code for span in (first, *spans("execute_tool work"))} == {
        StatusCode.UNSET
    }


async def test_the_id_of_the_trace_in_the_task_is_that_of_its_spans() -> None:
    async with serving({"work": ActionModule(echo)}, otel=True) as agent:
        task: Any = await agent.client.send_message({})
        await wait_until(lambda: spans("run"))
    (admit,) = spans("admit")
    assert admit.context is not None
    assert task.metadata["apcore"]["traceId"] == f"{admit.context.trace_id:032x}"


async def test_there_are_no_spans_unless_they_are_turned_on() -> None:
    async with serving({"work": ActionModule(echo)}) as agent:
        await agent.client.send_message({})
    assert not EXPORTER.get_finished_spans()


def test_without_opentelemetry_the_option_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "apcore_a2a_server.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install 'apcore-a2a\[otel\]'"):
        create_app(registry_of({"work": ActionModule(echo)}), otel=True)
