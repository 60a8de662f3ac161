"""The parent of worker processes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

FORK_FAILS = '''
"""The first of two workers is killed, and the first attempt to restart it fails."""

import errno
import logging
import os
import signal
import sys

from apcore_a2a_server.app import supervisor
from apcore_a2a_server.app.supervisor import StartReport, Supervisor, Worker

logging.basicConfig(format="%(message)s", stream=sys.stdout)
supervisor.RESTART_PAUSES = (0.01,)
fork, count = os.fork, 0
parent_id = os.getpid()


def failing_fork() -> int:
    global count
    count += 1
    if count == 3:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()


def serve(worker: Worker) -> None:
    worker.report(StartReport(1, None))
    if count == 4:  # the first worker, started again
        os.kill(parent_id, signal.SIGTERM)
    worker.link.recv(16)


def on_start(started: StartReport) -> None:
    os.kill(parent._processes[0].id, signal.SIGKILL)


os.fork = failing_fork
parent = Supervisor(
    2,
    serve,
    on_start=on_start,
    on_end=lambda number: print("ended", number, flush=True),
    on_stop=lambda: print("stopping", flush=True),
    shutdown_timeout=30,
)
parent.run()
'''


HALF_A_REPORT = """
import os
import signal

from apcore_a2a_server.app.supervisor import StartReport, Supervisor, Worker, _pack


def serve(worker: Worker) -> None:
    worker.link.sendall(_pack(StartReport(1, None))[:-1])
    os.kill(os.getpid(), signal.SIGKILL)


callbacks = dict.fromkeys(["on_start", "on_end", "on_stop"], lambda *_: None)
Supervisor(1, serve, **callbacks, shutdown_timeout=30).run()
"""


UNNAMED_SIGNAL = HALF_A_REPORT.replace("signal.SIGKILL", "signal.SIGRTMIN + 1")


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    path = folder / "supervised.py"
    path.write_text(script)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_worker_that_cannot_be_forked_does_not_end_the_others(tmp_path: Path) -> None:
    result = run(FORK_FAILS, tmp_path)

    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "ended 0"
    assert "SIGKILL" in lines[1]
    assert lines[2].startswith("Worker 1 can't be started: Resource temporarily unavailable")
    assert lines[3] == "stopping"
    assert sorted(lines[4:]) == ["ended 0", "ended 1"]


def test_a_worker_killed_while_it_reports_readiness_counts_as_not_ready(
    tmp_path: Path,
) -> None:
    result = run(HALF_A_REPORT, tmp_path)
    assert result.returncode == 1
    assert "WorkerError: A worker was ended by SIGKILL before it served" in result.stderr


def test_a_worker_may_end_by_a_signal_without_a_name(tmp_path: Path) -> None:
    result = run(UNNAMED_SIGNAL, tmp_path)
    assert result.returncode == 1
    assert "WorkerError: A worker was ended by signal 35 before it served" in result.stderr
