import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from apcore import (
    AlwaysDenyHandler,
    ApprovalDeniedError,
    AutoApproveHandler,
    CancelToken,
    Context,
    ExecutionCancelledError,
    Executor,
    InvalidInputError,
    Registry,
    SchemaValidationError,
)

from tests.server.checking_client import Answer
from tests.server.inloop import DIALECTS, Peer, content_of, serving
from tests.serving import PATIENCE

pytestmark = pytest.mark.anyio

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"
ORDER: dict[str, Any] = {
    "customer": {"name": "Ada", "address": {"city": "London", "country": "GB"}},
    "lines": [{"sku": "mug", "quantity": 1, "unit_cents": 1250}],
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def registry() -> Registry:
    registry = Registry(extensions_dir=str(EXTENSIONS))
    registry.discover()
    return registry


@pytest.fixture(scope="module")
def executor(registry: Registry) -> Iterator[Executor]:
    with Executor(registry, approval_handler=AutoApproveHandler()) as executor:
        yield executor


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sandbox"
    (folder / "reports").mkdir(parents=True)
    (folder / "reports" / "2019.txt").write_text("old")
    (tmp_path / "secret.txt").write_text("keep")
    monkeypatch.setenv("APCORE_EXAMPLE_ROOT", str(folder))
    return folder


async def columns(executor: Executor, table: str, **inputs: str) -> dict[str, dict[str, Any]]:
    summary = await executor.call_async("csv.summary", {"text": table, **inputs})
    return {column["name"]: column for column in summary["columns"]}


async def html(executor: Executor, text: str) -> str:
    rendered = await executor.call_async("markdown.html", {"text": text})
    assert isinstance(rendered["html"], str)
    return rendered["html"]


async def chunks(executor: Executor, module: str, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    # apcore keeps merging into a chunk after yielding it.
    return [deepcopy(chunk) async for chunk in executor.stream(module, inputs)]


async def test_every_file_is_a_module(registry: Registry) -> None:
    assert registry.list() == [
        "csv.summary",
        "files.delete",
        "jobs.countdown",
        "markdown.html",
        "orders.price",
        "text.stats",
        "units.convert",
    ]


async def test_every_module_is_documented(registry: Registry) -> None:
    for module in registry.list():
        definition = registry.get_definition(module)
        assert definition is not None
        assert definition.name
        assert definition.tags
        assert definition.examples
        for schema in (definition.input_schema, definition.output_schema):
            fields = schema["properties"].values()
            assert all("description" in field or "$ref" in field for field in fields)


@pytest.mark.parametrize(
    "module", ["csv.summary", "markdown.html", "orders.price", "text.stats", "units.convert"]
)
async def test_examples_return_their_documented_output(
    executor: Executor, registry: Registry, module: str
) -> None:
    definition = registry.get_definition(module)
    assert definition is not None
    for example in definition.examples:
        assert await executor.call_async(module, example.inputs) == example.output


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        ("csv.summary", {}),
        ("csv.summary", {"text": "a\n1", "bytes": "YQox"}),
        ("csv.summary", {"uri": "https://example.org/a.csv"}),
        ("csv.summary", {"bytes": "not base64"}),
        ("csv.summary", {"bytes": "/w=="}),
        ("csv.summary", {"text": "a\n1", "mimeType": "image/png"}),
        ("markdown.html", {"text": 1}),
        ("text.stats", {"text": " \n "}),
        ("jobs.countdown", {"seconds": 0}),
        ("jobs.countdown", {"seconds": 1, "step": 0}),
        ("files.delete", {"path": ""}),
        ("files.delete", {"path": "a\0b"}),
        ("orders.price", {**ORDER, "lines": []}),
        ("orders.price", {**ORDER, "discount": "all"}),
        ("orders.price", {**ORDER, "voucher": "x"}),
        ("units.convert", {"text": "1 km in mi" + 200 * " "}),
    ],
)
async def test_inputs_that_do_not_match_the_schema_are_refused(
    executor: Executor, module: str, inputs: dict[str, Any]
) -> None:
    with pytest.raises(SchemaValidationError):
        await executor.call_async(module, inputs)


class TestCsvSummary:
    @pytest.mark.parametrize(
        ("cells", "kind", "low", "high", "mean"),
        [
            ("3\n10\n-1", "integer", -1, 10, 4.0),
            ("1\n2.5", "number", 1, 2.5, 1.75),
            ("00123\n7", "text", "00123", "7", None),
            ("2\nx", "text", "2", "x", None),
            ("9007199254740993", "text", "9007199254740993", "9007199254740993", None),
            ('""\n" "', "empty", None, None, None),
        ],
    )
    async def test_a_column_has_the_narrowest_type(
        self, executor: Executor, cells: str, kind: str, low: object, high: object, mean: object
    ) -> None:
        column = (await columns(executor, f"a\n{cells}\n"))["a"]
        summary = [column[key] for key in ("type", "min", "max", "mean")]
        assert summary == [kind, low, high, mean]
        assert type(column["min"]) is type(low)

    async def test_blank_cells_are_missing(self, executor: Executor) -> None:
        column = (await columns(executor, "a,b\n1,x\n,y\n"))["a"]
        assert (column["count"], column["missing"]) == (1, 1)

    async def test_a_table_may_have_no_rows(self, executor: Executor) -> None:
        assert {c["type"] for c in (await columns(executor, "a,b\n")).values()} == {"empty"}

    async def test_another_delimiter_can_be_used(self, executor: Executor) -> None:
        assert list(await columns(executor, "a;b\n1,5;2\n", delimiter=";")) == ["a", "b"]

    async def test_a_file_is_read_like_text(self, executor: Executor) -> None:
        file = {
            "name": "café.csv",
            "mimeType": "text/csv; charset=UTF-8",
            "uri": None,
            "bytes": base64.b64encode("\ufeffcafé\r\n1\r\n".encode()).decode(),
        }
        summary = await executor.call_async("csv.summary", file)
        assert (summary["name"], summary["rows"]) == ("café.csv", 1)
        assert summary["columns"][0]["name"] == "café"

    @pytest.mark.parametrize("table", ["", "a,a\n1,2", "a,\n1,2", "a,b\n1", 'a\n"1', 'a\n"1"2'])
    async def test_a_malformed_table_is_refused(self, executor: Executor, table: str) -> None:
        with pytest.raises(InvalidInputError):
            await executor.call_async("csv.summary", {"text": table})


class TestMarkdownHtml:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", ""),
            ("## Two", "<h2>Two</h2>"),
            ("one\r\ntwo\r\n\r\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
            ("1. a\n2) b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"),
            ("[*a*](https://b)", '<p><a href="https://b"><em>a</em></a></p>'),
            (
                "**a `b` [c](mailto:d@e)**",
                '<p><strong>a <code>b</code> <a href="mailto:d@e">c</a></strong></p>',
            ),
            ("**a** *b*", "<p><strong>a</strong> <em>b</em></p>"),
            (
                "```py\n*a*\n\n# <b>\n```\nc",
                "<pre><code>*a*\n\n# &lt;b&gt;\n</code></pre>\n<p>c</p>",
            ),
            ("```\nopen", "<pre><code>open</code></pre>"),
            ("-\n#\n**", "<p>-\n#\n**</p>"),
        ],
    )
    async def test_supported_markdown_is_rendered(
        self, executor: Executor, text: str, expected: str
    ) -> None:
        assert await html(executor, text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "<script>alert(1)</script>",
            "# <img src=x onerror=alert(1)>",
            "- `<b>`",
            "```\n</code><script>\n```",
            "[<i>](https://example.org)",
            '[x](https://example.org/"onclick="alert(1))',
            "[x](javascript:alert(1))",
            "[x](JavaScript://example.org/%0Aalert)",
            "[x](data:text/html,<script>)",
            "![x](file:///etc/passwd)",
        ],
    )
    async def test_no_active_content_is_rendered(self, executor: Executor, text: str) -> None:
        rendered = await html(executor, text)
        for harm in ("<script", "<img", "<b>", "<i>", '"onclick', 'href="java', 'href="data'):
            assert harm not in rendered

    async def test_links_with_unsupported_schemes_stay_text(self, executor: Executor) -> None:
        assert await html(executor, "[x](ftp://example.org)") == "<p>[x](ftp://example.org)</p>"


class TestTextStats:
    async def test_the_chunks_of_a_stream_add_up_to_the_result(self, executor: Executor) -> None:
        inputs = {"text": "One fish, two fish.\n\nRed fish.\n \nBlue fish.\n"}
        pieces = await chunks(executor, "text.stats", inputs)
        assert [list(piece.get("paragraphs", {})) for piece in pieces] == [["1"], ["2"], ["3"], []]
        paragraphs = {k: v for piece in pieces[:-1] for k, v in piece["paragraphs"].items()}
        result = await executor.call_async("text.stats", inputs)
        assert result == {"paragraphs": paragraphs, **pieces[-1]}
        assert result["common"]["fish"] == 4

    async def test_text_without_words_has_empty_stats(self, executor: Executor) -> None:
        stats = await executor.call_async("text.stats", {"text": "?!"})
        assert (stats["total"]["words"], stats["longest"], stats["common"]) == (0, "", {})

    async def test_a_canceled_stream_ends(self, executor: Executor) -> None:
        token = CancelToken()
        context: Context[Any] = Context.create(cancel_token=token)
        stream = executor.stream("text.stats", {"text": "a\n\nb"}, context)
        await anext(stream)
        token.cancel()
        with pytest.raises(ExecutionCancelledError):
            await anext(stream)


class TestJobsCountdown:
    async def test_each_step_is_reported(self, executor: Executor) -> None:
        reports = await chunks(executor, "jobs.countdown", {"seconds": 0.25, "step": 0.1})
        assert reports == [
            {"elapsed": 0.0, "remaining": 0.25, "progress": 0.0, "done": False},
            {"elapsed": 0.1, "remaining": 0.15, "progress": 0.4, "done": False},
            {"elapsed": 0.2, "remaining": 0.05, "progress": 0.8, "done": False},
            {"elapsed": 0.25, "remaining": 0.0, "progress": 1.0, "done": True},
        ]

    async def test_the_result_is_the_last_report(self, executor: Executor) -> None:
        result = await executor.call_async("jobs.countdown", {"seconds": 0.1})
        assert result == {"elapsed": 0.1, "remaining": 0.0, "progress": 1.0, "done": True}

    async def test_the_running_job_can_be_canceled(self, executor: Executor) -> None:
        token = CancelToken()
        asyncio.get_running_loop().call_later(0.1, token.cancel)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ExecutionCancelledError):
                await executor.call_async(
                    "jobs.countdown", {"seconds": 300}, Context.create(cancel_token=token)
                )

    async def test_the_stream_can_be_canceled(self, executor: Executor) -> None:
        token = CancelToken()
        context: Context[Any] = Context.create(cancel_token=token)
        stream = executor.stream("jobs.countdown", {"seconds": 300, "step": 150}, context)
        await anext(stream)
        token.cancel()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ExecutionCancelledError):
                await anext(stream)


class TestFilesDelete:
    async def test_an_approved_file_is_deleted(self, executor: Executor, sandbox: Path) -> None:
        result = await executor.call_async("files.delete", {"path": "reports/2019.txt"})
        assert result == {"deleted": "reports/2019.txt", "size": 3}
        assert not (sandbox / "reports" / "2019.txt").exists()

    async def test_without_approval_the_file_is_kept(
        self, registry: Registry, sandbox: Path
    ) -> None:
        with (
            Executor(registry, approval_handler=AlwaysDenyHandler()) as executor,
            pytest.raises(ApprovalDeniedError),
        ):
            await executor.call_async("files.delete", {"path": "reports/2019.txt"})
        assert (sandbox / "reports" / "2019.txt").exists()

    @pytest.mark.parametrize(
        "path", ["../secret.txt", "reports/../../secret.txt", "out/secret.txt", "link", "{outside}"]
    )
    async def test_paths_out_of_the_sandbox_are_refused(
        self, executor: Executor, sandbox: Path, path: str
    ) -> None:
        secret = sandbox.parent / "secret.txt"
        (sandbox / "out").symlink_to(sandbox.parent)
        (sandbox / "link").symlink_to(secret)
        with pytest.raises(InvalidInputError):
            await executor.call_async("files.delete", {"path": path.format(outside=secret)})
        assert secret.exists()

    @pytest.mark.parametrize("path", [".", "..", "reports", "reports/..", "none.txt", "x" * 255])
    async def test_only_a_regular_file_can_be_deleted(
        self, executor: Executor, sandbox: Path, path: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            await executor.call_async("files.delete", {"path": path})
        assert (sandbox / "reports" / "2019.txt").exists()


class TestOrdersPrice:
    async def test_the_schema_is_nested(self, registry: Registry) -> None:
        definition = registry.get_definition("orders.price")
        assert definition is not None
        assert set(definition.input_schema["$defs"]) == {"Address", "Customer", "Line"}

    @pytest.mark.parametrize(("cents", "tax"), [(0, 0), (2, 0), (3, 1), (12, 2), (13, 3)])
    async def test_the_tax_is_rounded_to_the_nearest_cent(
        self, executor: Executor, cents: int, tax: int
    ) -> None:
        line = {"sku": "pin", "quantity": 1, "unit_cents": cents}
        bill = await executor.call_async("orders.price", {**ORDER, "lines": [line]})
        assert bill["tax_cents"] == tax
        assert bill["total_cents"] == cents + tax

    async def test_the_bulk_discount_requires_enough_pieces(self, executor: Executor) -> None:
        line = {"sku": "pin", "quantity": 100, "unit_cents": 10}
        order = {**ORDER, "discount": "bulk", "lines": [line]}
        assert (await executor.call_async("orders.price", order))["discount_cents"] == 100
        with pytest.raises(InvalidInputError):
            await executor.call_async("orders.price", {**ORDER, "discount": "bulk"})


class TestUnitsConvert:
    @pytest.fixture(params=DIALECTS)
    async def peer(self, request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
        async with serving(str(EXTENSIONS), request.param) as peer:
            yield peer

    async def convert(self, peer: Peer, text: str, **members: Any) -> Answer:
        part = peer.part(text=text)
        return await peer.send("units.convert", part, **{"contextId": "trip", **members})

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 mi in m", "1 mi = 1609.34 m"),
            ("12  FT To yd", "12 ft = 4 yd"),
            ("5 in in cm", "5 in = 12.7 cm"),
            ("5in cm", "5 in = 12.7 cm"),
            ("0.5 lb to oz", "0.5 lb = 8 oz"),
            ("1 mm in mi", "1 mm = 6.21371e-07 mi"),
        ],
    )
    async def test_a_complete_request_needs_no_conversation(
        self, executor: Executor, text: str, expected: str
    ) -> None:
        assert (await executor.call_async("units.convert", {"text": text}))["text"] == expected

    @pytest.mark.parametrize(
        "text", ["5 km", "mi", "5 km in kg", "5 km in km", "5 min", "-5 km in mi", "hello", ""]
    )
    async def test_without_a_conversation_an_incomplete_or_invalid_request_is_refused(
        self, executor: Executor, text: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            await executor.call_async("units.convert", {"text": text})

    async def test_a_missing_unit_is_asked_for(self, peer: Peer) -> None:
        paused = await self.convert(peer, "2 kg")
        question, data = map(content_of, paused.task["status"]["message"]["parts"])
        assert paused.state == "input-required"
        assert question == "2 kg in which unit?\n1. g\n2. oz\n3. lb"
        assert data["input"]["choices"] == ["g", "oz", "lb"]
        answer = await self.convert(peer, "lb", taskId=paused.task["id"])
        assert answer.task["id"] == paused.task["id"]
        assert answer.data == {"text": "2 kg = 4.40925 lb", "amount": 4.40925, "unit": "lb"}

    @pytest.mark.parametrize("answer", ["hello", "kg", "km"])
    async def test_after_an_invalid_answer_the_unit_is_asked_for_again(
        self, peer: Peer, answer: str
    ) -> None:
        paused = await self.convert(peer, "2 kg")
        task_id = paused.task["id"]
        assert (await self.convert(peer, answer, taskId=task_id)).state == "input-required"
        answered = await self.convert(peer, "g", taskId=task_id)
        assert answered.task["id"] == task_id
        assert answered.data["text"] == "2 kg = 2000 g"

    async def test_a_missing_amount_or_unit_is_taken_from_earlier_messages(
        self, peer: Peer
    ) -> None:
        answers = {
            "5 km in mi": "5 km = 3.10686 mi",
            "8 km": "8 km = 4.97097 mi",
            "in ft": "8 km = 26246.7 ft",
            "1 kg in lb": "1 kg = 2.20462 lb",
            "1 m": "1 m = 3.28084 ft",
            "2 kg": "2 kg = 4.40925 lb",
        }
        assert [(await self.convert(peer, text)).data["text"] for text in answers] == [
            *answers.values()
        ]

    async def test_earlier_data_parts_are_read_too(self, peer: Peer) -> None:
        data = peer.part(data={"text": "5 km in mi"})
        await peer.send("units.convert", data, contextId="trip")
        assert (await self.convert(peer, "1 km")).data["text"] == "1 km = 0.621371 mi"

    async def test_earlier_messages_without_a_measure_are_ignored(self, peer: Peer) -> None:
        await self.convert(peer, "5 km in mi")
        parts = [peer.part(text="5 km in the woods"), peer.part(data=[5]), peer.part(data={})]
        await peer.send("text.stats", *parts, contextId="trip")
        assert (await self.convert(peer, "1 km")).data["text"] == "1 km = 0.621371 mi"

    async def test_another_conversation_starts_without_history(self, peer: Peer) -> None:
        await self.convert(peer, "5 km in mi")
        answer = await self.convert(peer, "ft", contextId="another trip")
        assert answer.state == "input-required"
