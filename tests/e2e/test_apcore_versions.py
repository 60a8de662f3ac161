"""The server with the oldest and the newest supported apcore."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.environments import ROOT, python_environment
from tests.e2e.modules import EXAMPLES
from tests.e2e.programs import run_steps

SOURCES = [ROOT / "packages" / name for name in ("apcore-a2a-core", "apcore-a2a-server")]
MODULES = ("csv/summary.py", "files/delete.py", "jobs/countdown.py", "text/stats.py")


@pytest.fixture(scope="module", params=["0.22.0", "newest"])
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the result of each step with one version of apcore."""
    folder = tmp_path_factory.mktemp("modules")
    for path in MODULES:
        (folder / path).parent.mkdir()
        shutil.copy(EXAMPLES / path, folder / path)
    python = Path(sys.executable)
    if request.param != "newest":
        apcore = f"apcore=={request.param}"
        python = python_environment(f"apcore-{request.param}", apcore, sources=SOURCES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APCORE_EXAMPLE_ROOT", str(tmp_path_factory.mktemp("sandbox")))
        steps = run_steps(str(python), "-m", "tests.e2e.scripts.core", str(folder), cwd=ROOT)
    if request.param != "newest":
        assert steps["discover"]["apcore"] == request.param
    return steps


def test_the_modules_of_a_folder_become_skills(steps: Any) -> None:
    skills = {"csv.summary", "files.delete", "jobs.countdown", "text.stats"}
    assert steps["discover"]["skills"].keys() == skills
    tags = ["csv", "data", "statistics", "readonly", "idempotent"]
    assert steps["discover"]["skills"]["csv.summary"] == tags
    assert steps["discover"]["health"] == "healthy"
    assert steps["discover"]["modules"] == 4


def test_a_message_of_0_3_returns_the_result(steps: Any) -> None:
    columns = [["name", "Alan"], ["age", 41]]
    assert steps["send_0_3"] == {"state": "completed", "columns": columns, "same": True}


def test_a_message_of_1_0_returns_the_result(steps: Any) -> None:
    total = {"words": 2, "characters": 5}
    assert steps["send_1_0"] == {"state": "TASK_STATE_COMPLETED", "total": total}


def test_a_stream_delivers_each_chunk(steps: Any) -> None:
    kinds = ["task", "status-update", *["artifact-update"] * 3, "status-update"]
    assert steps["stream"] == {"ids": [1, 2, 3, 4, 5, 6], "kinds": kinds, "state": "completed"}


def test_a_streamed_task_of_0_3_can_be_canceled(steps: Any) -> None:
    assert steps["cancel"] == {"state": "canceled", "last": "canceled"}


def test_a_task_of_1_0_sent_without_waiting_can_be_canceled(steps: Any) -> None:
    canceled = "TASK_STATE_CANCELED"
    assert steps["cancel_sent"] == {"state": canceled, "last": canceled}


def test_bad_input_is_refused_with_the_name_of_its_field(steps: Any) -> None:
    assert steps["bad_input"] == {"wrong": [-32602, ["text"]], "missing": [-32602, ["seconds"]]}


def test_input_with_an_unknown_field_is_refused_with_its_name(steps: Any) -> None:
    assert steps["unknown_input"] == {"code": -32602, "fields": ["color"]}


def test_input_that_the_module_refuses_fails_the_task(steps: Any) -> None:
    assert steps["refused"] == {"state": "failed", "code": -32602}


def test_a_skill_that_needs_approval_pauses_before_it_runs(steps: Any) -> None:
    assert steps["approve"] == {
        "before": "input-required",
        "kept": True,
        "after": "completed",
        "gone": True,
    }


def test_bad_input_is_refused_before_approval(steps: Any) -> None:
    assert steps["approve_bad_input"] == {"code": -32602, "fields": ["path"]}
