"""The benchmark: figures, tables, targets, reading HTTP, and counting calls of stores."""

import asyncio
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

import pytest
from apcore_a2a_server.store import Store
from apcore_a2a_server.store.testing.samples import begun

from tools.benchmarks import (
    bridges,
    cli,
    inprocess,
    instructions,
    messages,
    peers,
    remote,
    report,
    stores,
    streams,
)
from tools.benchmarks.apps import LOGGED
from tools.benchmarks.clients import measure_import
from tools.benchmarks.figures import FactKey, Figures, Key, Results, percentile
from tools.benchmarks.http1 import BadResponse, Response, ResponseParser, get_request
from tools.benchmarks.load import Tally
from tools.benchmarks.measured_stores import (
    MEMORY,
    POSTGRESQL,
    SQLITE,
    StoreCalls,
    children_cpu,
    open_counting_store,
    places,
    tree_cpu,
)
from tools.benchmarks.peers import ADAPTER, BUSY_SEND, FASTA2A, JS
from tools.benchmarks.report import Table
from tools.benchmarks.rounds import LEFTOVER, TASK_BYTES, Bench, Plan, figures_of
from tools.benchmarks.scenarios import BUSY, CARD, GET, MANY_CHUNKS, SEND, STREAM
from tools.benchmarks.servers import STACKS, ServerFailed, output_of
from tools.benchmarks.stores import Sample
from tools.benchmarks.subject import task_ids
from tools.benchmarks.targets import START, Check, checks

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"6\r\ndata: \r\nc;note=x\r\n1\r\n\r\ndata: 2\r\n0\r\n\r\n"
)
STACK = "h11+asyncio"


def figures(cpu: float = 1e-3, p50: float = 1e-3, **more: float) -> Figures:
    return Figures(answers=10, rate=1 / cpu, cpu=cpu, p50=p50, p99=2 * p50, **more)


def key(server: str, scenario: str, connections: int = BUSY) -> Key:
    return Key(STACK, server, scenario, connections)


def check_of(results: Results, what: str) -> Check:
    (check,) = (check for check in checks(results) if check.what.startswith(what))
    return check


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.995, 100), (1.0, 100)]
)
def test_a_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


def test_a_percentile_of_no_values_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("wire", "body"), [(PLAIN, b"hello"), (CHUNKED, b"data: 1\r\n\r\ndata: 2")]
)
def test_answers_can_be_read_in_pieces_of_any_size(wire: bytes, body: bytes, size: int) -> None:
    parser = ResponseParser()
    answers = [
        answer
        for _ in range(3)
        for start in range(0, len(wire), size)
        if (answer := parser.feed(wire[start : start + size]))
    ]
    assert answers == [Response(200, body)] * 3


def test_the_body_of_a_stream_can_be_read_before_its_end() -> None:
    parser = ResponseParser()
    assert parser.feed(CHUNKED[:-20]) is None
    assert parser.body == b"data: "


def test_an_answer_without_a_body_is_complete_with_its_head() -> None:
    parser = ResponseParser()
    answer = parser.feed(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")
    assert answer == Response(503, b"")


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nServer: endless\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnine\r\n",
    ],
)
def test_an_invalid_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(BadResponse):
        ResponseParser().feed(wire)


def test_get_returns_a_complete_request() -> None:
    assert get_request("/card") == b"GET /card HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "requests", [messages.send_requests(), messages.send_v1_requests(), messages.stream_requests()]
)
def test_messages_have_their_declared_length_and_unique_ids(
    requests: messages.Requests,
) -> None:
    ids = set()
    for request in islice(requests, 3):
        head, _, body = request.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        params = json.loads(body)["params"]
        assert params["metadata"] == {"skillId": "bench.noop"}
        ids.add(params["message"]["messageId"])
    assert len(ids) == 3


def test_a_skill_can_be_named_in_the_message() -> None:
    request = next(messages.send_requests("bench.sleep", in_message=True, seconds=1))
    body = request.partition(b"\r\n\r\n")[2]
    assert json.loads(body)["params"]["message"]["metadata"] == {"skillId": "bench.sleep"}


def test_tasks_are_requested_in_turn() -> None:
    requested = [
        request.rpartition(b'"id":"')[2][:1]
        for request in islice(messages.get_task_requests("ab"), 3)
    ]
    assert requested == [b"a", b"b", b"a"]


def test_task_ids_are_distinguished_from_other_ids() -> None:
    task = "0b0a1f4e-0000-4000-8000-000000000001"
    body = json.dumps({"id": 1, "result": {"contextId": task[::-1], "id": task}}).encode()
    assert task_ids([body, b'{"error": {}}']) == [task]


def test_figures_are_computed_per_answer() -> None:
    tally = Tally(latencies=[0.1, 0.2, 0.3, 0.4], first_latencies=[0.05], elapsed=2.0)
    measured = figures_of(tally, cpu=0.8)
    assert (measured.answers, measured.rate, measured.cpu, measured.p50) == (4, 2.0, 0.2, 0.2)
    assert measured.first_p99 == 0.05
    assert math.isnan(measured.delivery_p99)


def test_the_best_of_two_rounds_is_kept_figure_by_figure() -> None:
    results = Results()
    results.add(key("ours", SEND), Figures(answers=1, rate=5, cpu=1, p50=4, p99=9))
    results.add(key("ours", SEND), Figures(answers=2, rate=6, cpu=2, p50=3, p99=10))
    best = results.figures[key("ours", SEND)]
    assert (best.answers, best.rate, best.cpu, best.p50, best.p99) == (3, 6, 1, 3, 9)


def test_a_figure_of_one_round_is_kept_if_the_other_has_none() -> None:
    measured, unmeasured = figures(1e-3, first_p50=2e-3), figures(1e-3)
    assert measured.best(unmeasured).first_p50 == unmeasured.best(measured).first_p50 == 2e-3
    assert math.isnan(measured.best(unmeasured).first_p99)


def test_a_program_that_fails_or_takes_too_long_ends_a_measurement() -> None:
    with pytest.raises(ServerFailed, match="no data"):
        output_of([sys.executable, "-c", r"raise SystemExit('reading\nno data')"], 60)
    with pytest.raises(ServerFailed, match=r"took more than 0 s: .*python"):
        output_of([sys.executable, "-c", "import time; time.sleep(60)"], 0.01)
    assert output_of([sys.executable, "-c", "print(7)"], 60) == "7\n"


def test_a_ratio_needs_both_figures() -> None:
    results = Results()
    results.add(key("ours", GET), figures(3e-4))
    assert results.ratio(key("ours", GET), [key("bare", SEND)]) is None
    results.add(key("bare", SEND), figures(2e-4))
    results.add(key("bare", STREAM), figures(1e-4))
    baselines = [key("bare", SEND), key("bare", STREAM)]
    assert results.ratio(key("ours", GET), baselines) == pytest.approx(3.0)
    assert results.ratio(key("ours", CARD), baselines) is None


@pytest.mark.parametrize(
    ("check", "verdict", "missed"),
    [
        (Check("x", "", 3.0, 4.0, "x"), "met by 25 %", False),
        (Check("x", "", 5.0, 4.0, "x"), "missed by 25 %", True),
        (Check("x", "", 50.0, 100.0, "/s", at_least=True), "missed by 50 %", True),
        (Check("x", "", 250.0, 100.0, "/s", at_least=True), "met by 150 %", False),
        (Check("x", "", 4.0, 4.0, "x"), "met by 0 %", False),
        (Check("x", "", 0.0, 0.0, ""), "met", False),
        (Check("x", "", 2.0, 0.0, ""), "missed by 2", True),
        (Check("x", "", None, 4.0, "x"), "not measured", False),
    ],
)
def test_a_verdict_says_by_how_much_a_target_is_met_or_missed(
    check: Check, verdict: str, missed: bool
) -> None:
    assert (check.verdict, check.missed) == (verdict, missed)


def test_sends_are_compared_with_a_bare_echo_and_the_sdk() -> None:
    results = Results()
    results.add(key("bare", SEND), figures(1e-4))
    results.add(key("ours", SEND), figures(5e-4))
    results.add(key("sdk", SEND), figures(2e-3))
    cpu = check_of(results, "message/send (0.3): CPU")
    assert cpu.value == pytest.approx(5.0)
    assert (cpu.limit, cpu.missed) == (4.0, True)
    throughput = check_of(results, "message/send: throughput")
    assert throughput.value == pytest.approx(4.0)
    assert not throughput.missed


def test_first_events_are_compared_with_a_bare_echo_and_a_limit() -> None:
    results = Results()
    results.add(key("bare", STREAM, 1), figures(p50=1e-3))
    results.add(key("ours", STREAM, 1), figures(first_p50=5e-3, first_p99=6e-2))
    assert check_of(results, "first SSE event: latency").value == pytest.approx(5.0)
    assert check_of(results, "first SSE event, p99").verdict == "missed by 20 %"


def test_single_figures_are_checked_in_the_unit_of_their_limit() -> None:
    results = Results()
    results.add(key("ours", SEND), figures())
    results.facts[FactKey(STACK, "ours", TASK_BYTES)] = 5 * 1024
    results.facts[FactKey(STACK, "ours", LEFTOVER)] = 1
    results.facts[FactKey("", "ours", START)] = 1.5
    assert check_of(results, "memory per stored task").verdict == "met by 50 %"
    assert check_of(results, LEFTOVER).missed
    assert check_of(results, START).verdict == "met by 25 %"


def test_costs_of_chunks_and_of_the_access_log_are_multiples_of_an_echo() -> None:
    results, stack = Results(), STACKS["uvloop"].name
    costs = [
        ("bare", SEND, BUSY, 50e-6),
        ("ours", STREAM, BUSY, 300e-6),
        ("ours", GET, BUSY, 70e-6),
    ]
    costs += [("ours", MANY_CHUNKS, 8, 300e-6 + 99 * 40e-6), (LOGGED, GET, BUSY, 90e-6)]
    for server, scenario, connections, cpu in costs:
        results.add(Key(stack, server, scenario, connections), figures(cpu))
    chunk, log = (check_of(results, what) for what in ("each further chunk", "the access log"))
    assert (chunk.verdict, log.verdict) == ("met by 20 %", "missed by 60 %")


def test_the_target_of_an_unmeasured_figure_is_neither_met_nor_missed() -> None:
    results = Results()
    results.add(key("bare", SEND), figures())
    assert {check.verdict for check in checks(results)} == {"not measured"}


def test_a_table_is_aligned_in_text_and_plain_in_markdown() -> None:
    table = Table("Times", ["what", "server", "ms"], [["send", "ours", "1.5"]])
    assert table.text().splitlines() == ["Times", "what  server   ms", "send  ours    1.5"]
    assert table.markdown().splitlines() == [
        "### Times",
        "",
        "| what | server | ms |",
        "| --- | --- | ---: |",
        "| send | ours | 1.5 |",
    ]


def test_a_report_lists_every_server_and_missing_figures() -> None:
    results = Results(failures=["ours: 1 wrong answer"], unavailable={"sdk": "ImportError"})
    results.add(key("bare", SEND, 1), figures())
    results.add(key("bare", SEND), figures(1e-4))
    results.add(key("ours", SEND), figures(2e-4))
    page = report.markdown(results, "./tools/bench --quick")
    assert "- command: `./tools/bench --quick`" in page
    assert (
        f"| {SEND} | bare | 1.00 | 2.00 | 1,000 | 32 | 1.00 | 2.00 | 10,000 | 100 | 1.00 |" in page
    )
    assert f"| {SEND} | ours |  |  |  | 32 | 1.00 | 2.00 | 5,000 | 200 | 2.00 |" in page
    assert "Not measured: sdk: ImportError" in page
    assert "Wrong: ours: 1 wrong answer" in page


def test_the_json_report_has_null_for_missing_figures() -> None:
    results = Results()
    results.add(key("ours", SEND), figures(2e-4))
    document = json.loads(report.as_json(results, "./tools/bench"))
    (entry,) = document["figures"]
    assert (entry["server"], entry["cpu"], entry["first_p50"]) == ("ours", 2e-4, None)
    assert {check["verdict"] for check in document["checks"]} >= {"not measured", "met by 4900 %"}


def samples(*rates: float, cpu: float = 1e-3) -> list[Sample]:
    return [Sample(rate, p50=1 / rate, p95=2 / rate, cpu=cpu, writes=2) for rate in rates]


def test_stores_are_compared_with_memory_round_by_round() -> None:
    samples_by_key = {
        stores.Key(stores.SEND, MEMORY, BUSY): samples(1000, 500, 2000),
        stores.Key(stores.SEND, SQLITE, BUSY): samples(600, 400, 1000, cpu=2e-3),
    }
    table = stores.table("Stores", samples_by_key)
    memory, sqlite = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (memory["/s"], memory["best"]) == ("1,000", "2,000")
    assert (sqlite["store"], sqlite["/s"], sqlite["writes"]) == ("sqlite", "600", "2.00")
    assert table.rows[1][5] == "0.60"  # 0.6, 0.8 and 0.5 times memory
    assert table.rows[1][9] == "2.00"  # CPU time relative to memory
    assert (sqlite["database us"], sqlite["reads"]) == ("", "")


def test_durable_stores_have_a_target() -> None:
    samples_by_key = {stores.Key(stores.SEND, SQLITE, BUSY): samples(400, 450, 800)}
    rate, *other_checks = stores.checks(samples_by_key, STACKS["uvloop"])
    assert (rate.value, rate.verdict) == (450, "missed by 10 %")
    assert {check.verdict for check in other_checks} == {"not measured"}


def test_durable_stores_are_compared_with_memory_and_an_echo() -> None:
    samples_by_key = {
        stores.Key(stores.SEND, MEMORY, BUSY): samples(1000, 500, 2000, cpu=4e-3),
        stores.Key(stores.SEND, SQLITE, BUSY): samples(400, 250, 1200, cpu=7e-3),
        stores.Key(stores.SEND, stores.ECHO, BUSY): samples(9000, 9000, 9000, cpu=1e-3),
    }
    _, rate, cpu, *_ = stores.checks(samples_by_key, STACKS["uvloop"])
    assert (rate.value, rate.verdict) == (0.5, "met by 0 %")
    assert cpu.verdict == "met by 0 %"


def test_a_counting_store_counts_its_reads_and_writes() -> None:
    async def use(store: Store) -> None:
        record, _ = await begun(store)
        assert await store.get(record.task.id, record.owner) == record

    calls = StoreCalls()
    store = open_counting_store("memory", calls)
    assert isinstance(store, Store)
    store.lease_seconds = 3
    asyncio.run(use(store))
    assert (calls.writes, calls.reads, store.lease_seconds) == (1, 1, 3)


def test_the_folder_of_a_store_is_deleted_at_the_end() -> None:
    with places([MEMORY, SQLITE], print) as measured_stores:
        assert measured_stores[MEMORY].address == "memory"
        folder = Path(measured_stores[SQLITE].address.removeprefix("sqlite:///")).parent
        assert folder.is_dir()
        assert measured_stores[SQLITE].cpu() == 0
    assert not folder.exists()


def test_without_postgresql_the_other_stores_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tests.store.postgresql.FOLDERS", [])
    with places([MEMORY, POSTGRESQL], print) as measured_stores:
        assert [*measured_stores] == [MEMORY]
    assert capsys.readouterr().out.startswith("PostgreSQL is missing")


@pytest.mark.process
def test_a_single_store_is_measured_in_a_separate_process(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'agent.db'}"
    sample = Sample(**inprocess.measure_store("asyncio", address, callers=4, seconds=0.1))
    assert sample.rate > 0
    assert sample.cpu > 0
    assert 0 < sample.p50 <= sample.p95


def test_the_cpu_time_of_a_process_is_read_from_proc() -> None:
    used = sum(os.times()[:4])
    assert tree_cpu(os.getpid()) >= used - 0.05 or sys.platform != "linux"
    assert math.isnan(tree_cpu(0))


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_cpu_time_of_children_includes_those_that_have_ended() -> None:
    before = children_cpu(os.getpid())
    code = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert children_cpu(os.getpid()) - before >= 0.15


def run_plan(results: Results, plan: Plan) -> None:
    with Bench(plan, results, print) as bench:
        bench.run_rounds()


def plan_of_sends(*servers: str, **programs: peers.Program) -> Plan:
    """Return a plan with a few sends to each server."""
    return Plan(
        stacks=[peers.STACK],
        servers=["bare", *servers],
        rounds=1,
        bursts=0,
        seconds=0.05,
        stored=0,
        programs=programs,
        scenarios=[BUSY_SEND],
        warm_up=4,
    )


@pytest.mark.process
@pytest.mark.smoke
def test_servers_are_compared_under_load() -> None:
    results = Results()
    run_plan(results, plan_of_sends("ours"))
    bare, ours, *_ = peers.table(results).rows
    assert (bare[3], bare[5]) == ("1.00", "1.00")
    assert float(ours[3]) < 1 < float(ours[5])


@pytest.mark.process
@pytest.mark.parametrize("name", [JS, FASTA2A, ADAPTER])
def test_a_peer_answers_in_a_separate_environment(name: str) -> None:
    results = Results()
    run_plan(results, plan_of_sends(name, **{name: peers.program(name)}))
    assert not results.failures
    assert not results.unavailable
    (row,) = (row for row in peers.table(results).rows if row[0] == name)
    assert float(row[5]) > 0


def test_a_peer_that_cannot_be_installed_is_in_the_table_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_to_install(*_: object) -> str:
        pytest.skip("npm is not installed")

    monkeypatch.setattr(peers, "node_modules", fail_to_install)
    monkeypatch.setattr(peers, "python_environment", lambda *_: Path("python"))
    results = Results()
    plan = peers.plan(results, quick=True)
    assert plan.servers == ["bare", "ours", "sdk", FASTA2A, ADAPTER]
    rows = {row[0]: row[1] for row in peers.table(results).rows}
    assert rows[JS] == "not measured: npm is not installed"


def test_the_table_says_which_server_does_not_wait_for_its_tasks() -> None:
    results = Results()
    for server in ("bare", FASTA2A, ADAPTER):
        results.add(Key(peers.STACK.name, server, SEND, BUSY), figures())
    rows = {row[0]: row[1] for row in peers.table(results).rows}
    assert rows[FASTA2A] == "fasta2a==2.1.1, does not wait"
    assert rows[ADAPTER] == "a2a-adapter==0.2.14"


def test_a_server_with_wrong_answers_has_no_figures() -> None:
    results = Results(failures=["ours on httptools+uvloop: message/send (0.3): 500"])
    for server in ("bare", "ours"):
        results.add(Key(peers.STACK.name, server, SEND, BUSY), figures())
    bare, ours, *_ = peers.table(results).rows
    assert bare[1:] == ["an echo", "1,000", "1.00", "1000", "1.00"]
    assert ours[1].startswith("not measured: ours on httptools+uvloop")
    assert ours[2:] == [""] * 4


@pytest.mark.process
def test_bridges_are_compared_with_a2a_adapter() -> None:
    plan = replace(bridges.plan(quick=True), rounds=1, seconds=0.05, warm_up=4)
    results = Results()
    run_plan(results, plan)
    assert not results.failures
    assert not results.unavailable
    rows = bridges.table(results).rows
    assert [row[0] for row in rows] == ["function", "generator", "LangGraph", "LangGraph"]
    generator, graph = rows[1], rows[3]
    assert float(generator[4]) < float(generator[5])  # a2a-adapter holds one word back
    assert float(graph[4]) > 0
    assert graph[5:] == ["none", ""]


@pytest.mark.process
def test_a_remote_skill_is_compared_with_a_direct_call() -> None:
    calls, memory = remote.measure(lambda _: None, quick=True)
    assert [row[0] for row in calls.rows] == ["1", str(remote.PARALLEL)]
    assert all(float(row[-1]) > 1 for row in calls.rows)  # a remote call includes a direct one
    assert float(memory.rows[0][1]) > 0


@pytest.mark.parametrize(
    ("our_cpu", "our_first", "is_missed"),
    [(1, 0.1, False), (1.59, 0.19, False), (1.61, 0.21, True)],
)
def test_the_limits_of_bridges_are_checked(
    our_cpu: float, our_first: float, is_missed: bool
) -> None:
    results, stack = Results(), peers.STACK.name
    libraries = [("ours", our_cpu, our_first), (ADAPTER, 2, 1)]
    for agent, names in bridges.AGENTS.items():
        for name, (library, cpu, first) in product(names, libraries):
            connections = BUSY if name == bridges.SEND else bridges.STREAMS
            measured = figures(cpu * 1e-3, first_p50=first)
            results.add(Key(stack, f"{library}, {agent}", name, connections), measured)
    ratios = [our_cpu / 2, our_first] * 2
    assert [check.value for check in bridges.checks(results)] == pytest.approx(ratios)
    assert [check.missed for check in bridges.checks(results)] == [is_missed] * 4


@pytest.mark.process
def test_events_to_open_streams_are_compared_with_echoes() -> None:
    rows = streams.measure(lambda _: None, quick=True, streams=50).rows
    assert len(rows) == 6
    assert all(float(row[1]) > 0 for row in rows)


@pytest.mark.process
def test_the_memory_of_open_streams_is_measured() -> None:
    assert 1024 < inprocess.measure_streams(100) < 1024**2


@pytest.mark.process
def test_building_the_application_is_measured() -> None:
    assert 0 < inprocess.measure_create() < 60


@pytest.mark.process
@pytest.mark.smoke
def test_an_import_is_compared_with_that_of_a_library_it_needs() -> None:
    seconds, ratio = measure_import("json.tool", 1, "json")
    assert 0 < seconds < 60
    assert ratio > 0


def test_this_server_is_compared_with_the_sdks() -> None:
    results = Results()
    for server, cpu in (("ours", 1e-3), (JS, 1.4e-3), ("sdk", 4e-3)):
        results.add(Key(peers.STACK.name, server, SEND, BUSY), figures(cpu))
    assert [check.verdict for check in peers.checks(results)] == ["met by 0 %", "missed by 50 %"]


@pytest.mark.process
def test_agents_with_stores_and_stores_alone_are_measured() -> None:
    messages_printed: list[str] = []
    plan = stores.Plan([MEMORY], STACKS["asyncio"], rounds=1, seconds=0.05)
    table, goals = stores.measure(plan, messages_printed.append)
    assert [row[:3] for row in table.rows] == [
        [stores.SEND, MEMORY, "1"],
        [stores.SEND, stores.ECHO, "1"],
        [stores.SEND, MEMORY, "32"],
        [stores.SEND, stores.ECHO, "32"],
        [stores.STREAM, MEMORY, "1"],
        [stores.STREAM, MEMORY, "8"],
        [stores.ALONE, MEMORY, "1"],
        [stores.ALONE, MEMORY, "32"],
    ]
    writes = {row[0]: row[-2] for row in table.rows if row[1] == MEMORY}
    assert writes == {stores.SEND: "2.00", stores.STREAM: "1.02", stores.ALONE: ""}
    assert {row[-1] for row in goals.rows} == {"not measured"}
    assert messages_printed == ["agents: round 1 of 1", "stores alone: round 1 of 1"]


def test_tables_are_exported_as_json() -> None:
    table = Table("Times", ["what", "server", "ms"], [["send", "ours", "1.5"]])
    document = json.loads(report.tables_as_json([table], "./tools/bench --store"))
    assert document["environment"]["command"] == "./tools/bench --store"
    assert document["tables"] == [
        {"title": "Times", "header": ["what", "server", "ms"], "rows": [["send", "ours", "1.5"]]}
    ]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record 1,000 instructions for a send in this environment."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps({instructions.environment(): {"send": 1000}, "other": {"send": 1}}))
    monkeypatch.setattr(instructions, "RECORD", path)
    return path


def replace_counts(monkeypatch: pytest.MonkeyPatch, **counts: int) -> None:
    """Replace the run under valgrind by the counts that it would return."""
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(instructions, "_count", lambda folder: counts)


@pytest.mark.parametrize(("count", "code"), [(900, 0), (1030, 0), (1031, 1)])
@pytest.mark.usefixtures("record")
def test_an_increase_of_more_than_three_percent_fails_the_gate(
    count: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_counts(monkeypatch, send=count)
    assert cli.main(["--instructions"]) == code
    assert ("more than 3%" in capsys.readouterr().out) == (code == 1)


@pytest.mark.usefixtures("record")
def test_scenarios_without_a_record_pass_the_gate_with_a_remark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_counts(monkeypatch, send=1000, get=200)
    assert cli.main(["--instructions"]) == 0
    assert "Not all scenarios are recorded for this environment" in capsys.readouterr().out


def test_recorded_instructions_replace_those_of_the_same_environment(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_counts(monkeypatch, send=2000)
    assert cli.main(["--instructions", "--record"]) == 0
    assert cli.main(["--instructions"]) == 0
    recorded = json.loads(record.read_text())
    assert recorded == {instructions.environment(): {"send": 2000}, "other": {"send": 1}}


def test_without_valgrind_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert cli.main(["--instructions"]) == 1
    assert "apt install valgrind" in capsys.readouterr().err
