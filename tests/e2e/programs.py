"""Run client programs in other environments, and check the results that they print."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.serving import PATIENCE

SKILLS = {"csv.summary", "files.delete", "jobs.countdown", "markdown.html", "orders.price"}


def run_steps(*command: str, cwd: Path | None = None) -> dict[str, Any]:
    """Run a program that prints a JSON line per step; return the results by step name."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=cwd)
    assert result.returncode == 0, result.stdout + result.stderr
    return {step.pop("step"): step for step in map(json.loads, result.stdout.splitlines())}


def spelling_in_0_3(name: str) -> str:
    """Return a kind or state as 0.3 spells it, from any library's spelling."""
    dashed = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)
    return dashed.replace("_", "-")


def check(steps: dict[str, Any], url: str) -> None:
    """Check the results of a program that has completed all steps."""
    card = steps["card"]
    assert card["url"] == f"{url}/"
    assert card["streaming"]
    assert set(card["skills"]) >= SKILLS
    assert steps["send"] == {
        "state": "completed",
        "output": {"html": "<h1>Tea</h1>"},
        "same": True,
    }
    assert steps["numbers"] == {"output": {"n": 2**53, "half": 0.5}}
    kinds = [spelling_in_0_3(kind) for kind in steps["stream"]["kinds"]]
    assert kinds == ["task", "status-update", *["artifact-update"] * 3, "status-update"]
    assert steps["stream"]["state"] == "completed"
    assert steps["cancel"]["before"] in {"submitted", "working"}
    assert steps["cancel"]["after"] == "canceled"
    kinds = [spelling_in_0_3(kind) for kind in steps["resubscribe"]["kinds"]]
    assert (kinds[0], kinds[-1]) == ("task", "status-update")
    assert steps["resubscribe"]["state"] == "completed"
    assert steps["resubscribe"]["output"]
    assert spelling_in_0_3(steps["approve"]["before"]) == "input-required"
    assert steps["approve"]["after"] == "rejected"
    assert steps["approve"]["same"]
