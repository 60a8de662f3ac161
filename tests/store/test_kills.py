"""An agent over a file that is killed at random moments loses nothing that it has said it has."""

import random
import signal
import sqlite3
import threading
from pathlib import Path

import httpx

from .replicas import Replica, hold, replica

ROUNDS = 8


def keep_sending(agent: Replica, known: list[tuple[str, str]], ended: threading.Event) -> None:
    """Begin tasks until the agent is gone; what it has answered for is *known*."""
    while not ended.is_set():
        skill = random.choice(["once", "again", "again", "asks"])
        try:
            known.append((agent.start(skill, seconds=random.choice([0, 0.05, 1])), skill))
        except (httpx.HTTPError, KeyError):
            return


def test_nothing_is_lost_at_random_kills(tmp_path: Path) -> None:
    store, known = f"sqlite:///{tmp_path / 'agent.db'}", list[tuple[str, str]]()
    for _ in range(ROUNDS):
        with replica(tmp_path, store) as agent:
            ended = threading.Event()
            senders = [
                threading.Thread(target=keep_sending, args=(agent, known, ended)) for _ in range(4)
            ]
            for sender in senders:
                sender.start()
            ended.wait(random.uniform(0.2, 1))
            agent.process.signal(signal.SIGKILL)
            ended.set()
            for sender in senders:
                sender.join()
    assert len(known) > 50
    with sqlite3.connect(tmp_path / "agent.db") as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    file.close()
    with replica(tmp_path, store) as agent:
        agent.ended(*(task_id for task_id, skill in known if skill != "asks"))
        for task_id, skill in known:
            if skill == "asks":  # one that was killed before it could ask has failed
                assert agent.state(task_id) in ("input-required", "failed")
                assert agent.starts(task_id) == 0
                continue
            hold(agent.events(task_id))
            assert skill != "once" or agent.starts(task_id) <= 1
