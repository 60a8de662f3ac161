"""`apcore-a2a webhooks`: list, show, test and redeliver webhooks of an agent's tasks."""

from collections.abc import Callable, Iterator

import pytest
from apcore_a2a.command.terminal import Terminal

from tests.push.agents import Caller
from tests.push.agents import agent as push_agent
from tests.push.receiver import Delivery, Receiver, Reply, receiving
from tests.server.conftest import eventually

from .remote import HOSTILE, Cli, Outcome, check_harmless
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli


class FailingAnswers:
    """Answers of a receiver: 410 until `is_repaired`."""

    def __init__(self) -> None:
        self.is_repaired = False

    def answer(self, delivery: Delivery) -> Reply:
        return Reply() if self.is_repaired else Reply(410)


@pytest.fixture
def failing_receiver() -> Iterator[tuple[FailingAnswers, Receiver]]:
    answers = FailingAnswers()
    with receiving(answers.answer) as receiver:
        yield answers, receiver


@pytest.fixture
def caller() -> Iterator[Caller]:
    with push_agent() as caller:
        yield caller


def task_with_failed_webhook(caller: Caller, url: str) -> str:
    """Return the id of a task whose webhook `w` has failed."""
    task = caller.send(id="w", url=url)
    eventually(lambda: caller.config(task)["status"] == "failed")
    return str(task["id"])


def test_webhooks_are_listed_and_shown_as_json(
    caller: Caller, failing_receiver: tuple[FailingAnswers, Receiver], cli: Cli
) -> None:
    task_id = task_with_failed_webhook(caller, failing_receiver[1].url)
    listed = cli("webhooks", "list", caller.url, "--state", "failed", "--limit", "5")
    shown = cli("webhooks", "show", caller.url, task_id)
    assert (listed.code, shown.code) == (0, 0)
    assert listed.json == shown.json
    (webhook,) = shown.json["webhooks"]
    assert (webhook["taskId"], webhook["id"], webhook["state"]) == (task_id, "w", "failed")
    assert [attempt["status"] for attempt in webhook["attempts"]] == [410]
    assert cli("webhooks", "list", caller.url, "--state", "active").json == {"webhooks": []}


def test_a_failed_webhook_can_be_tested_and_its_notifications_requeued(
    caller: Caller, failing_receiver: tuple[FailingAnswers, Receiver], cli: Cli
) -> None:
    answers, receiver = failing_receiver
    task_id = task_with_failed_webhook(caller, receiver.url)
    refused = cli("webhooks", "test", caller.url, task_id, "w")
    assert (refused.code, refused.json["attempt"]["result"]) == (3, "failed")
    answers.is_repaired = True
    passed = cli("webhooks", "test", caller.url, task_id, "w")
    assert (passed.code, passed.json["attempt"]["result"]) == (0, "delivered")
    before = len(receiver)
    assert cli("webhooks", "redeliver", caller.url, task_id, "w").json == {"requeued": 3}
    redelivered = receiver.wait(before + 3)[before:]
    assert [delivery.state for delivery in redelivered] == ["submitted", "working", "completed"]
    assert cli("webhooks", "redeliver", caller.url, task_id, "w").json == {"requeued": 0}


def test_on_a_terminal_webhooks_are_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    attempt = {"at": "2026-01-02T03:04:05.678Z", "result": "failed", "seconds": 0.25}
    refused = {**attempt, "status": 410, "reason": "status"}
    timed_out = {**attempt, "status": None, "reason": f"timeout{HOSTILE}"}
    webhook = {"taskId": "t-1", "id": "w", "url": "https://h.example/", "state": "active"}
    pending = {"pending": 2, "nextAttemptAt": "2026-01-02T03:05:00Z"}
    webhooks = [{**webhook, **pending, "attempts": [timed_out, refused]}]

    def printed(print_output: Callable[[Terminal], None]) -> str:
        print_output(Terminal())
        outcome = Outcome(0, *capsys.readouterr())
        check_harmless(outcome)
        return " ".join(outcome.out.split())

    listed = printed(lambda terminal: terminal.webhooks(webhooks))
    assert "2 pending, next 2026-01-02 03:05:00" in listed
    assert "2026-01-02 03:04:05 failed timeout" in listed
    assert "410" not in listed
    with_attempts = printed(lambda terminal: terminal.webhooks(webhooks, with_attempts=True))
    assert "2026-01-02 03:04:05 failed 410 0.250 s" in with_attempts
    assert "last attempt" in listed
    assert "attempts" in with_attempts
    assert "last attempt" not in with_attempts
    assert printed(lambda terminal: terminal.webhooks([])) == "No webhooks."
    assert "failed 410" in printed(lambda terminal: terminal.attempt(refused))
    assert (
        printed(lambda terminal: terminal.requeued(3)) == "3 notifications will be delivered again."
    )
    assert "Nothing to deliver again" in printed(lambda terminal: terminal.requeued(0))


def test_unknown_tasks_and_wrong_commands_are_errors(caller: Caller, agent: str, cli: Cli) -> None:
    for arguments in (("show", "t"), ("test", "t", "w"), ("redeliver", "t", "w")):
        command, *rest = arguments
        for url in (caller.url, agent):  # the second agent has no push notifications
            outcome = cli("webhooks", command, url, *rest)
            assert (outcome.code, outcome.out) == (3, "")
    assert cli("webhooks", "list").code == 1
    assert cli("webhooks", "lost", agent).code == 1


def test_help_lists_the_commands(cli: Cli) -> None:
    shown = cli("webhooks", "--help").out
    commands = ("list", "show", "test", "redeliver", "secret")
    assert [command for command in commands if f"  {command} " not in shown] == []
