"""Seed faults, to see whether the tests find them: `uv run tools/faults.py run`.

Each fault changes one place in the code so that one promise of the project is broken. Run them
before and after removing or rewriting tests: if a fault was found before and is missed afterwards,
the tests no longer protect that promise. When code moves, update its fault: `breaks` says what it
must break, and the snippets are only the current way to do so.

A run seeds one fault after the other, runs its tests with pytest, and removes the fault again.
Without `--full`, tests that `tools/test` leaves out by default do not run. Arguments after `--` are
passed to pytest. The verdicts:

    found   a test failed
    MISSED  no test failed
    HUNG    the tests did not end in time
    BROKEN  the snippet does not occur exactly once, its file has uncommitted changes, or pytest
            could not run the tests
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT = 300.0  # seconds that the tests of one fault may take
STOP_TIMEOUT = 10.0  # seconds for pytest to stop the servers and databases of its tests
VERDICTS = {0: "MISSED", 1: "found", 5: "MISSED"}  # by pytest's exit code; 5: no tests ran


@dataclass(frozen=True)
class Fault:
    """A mistake to seed.

    Attributes:
        name: The part of the project, and what goes wrong there.
        breaks: The consequence for users.
        path: The file it is seeded in, from the root of the repository.
        old: The right code, which is in the file exactly once.
        new: The wrong code.
        tests: The tests that should find it, as arguments for pytest.
    """

    name: str
    breaks: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


CLIENT = "packages/apcore-a2a-client/src/apcore_a2a_client"
CORE = "packages/apcore-a2a-core/src/apcore_a2a_core"
JWT = "packages/apcore-a2a-auth/src/apcore_a2a_auth/jwt.py"
SERVER = "packages/apcore-a2a-server/src/apcore_a2a_server"

FAULTS = (
    Fault(
        "core-keeps-approval-token",
        "A client can put an approval token among the inputs, and so approve its own call.",
        f"{CORE}/parts.py",
        'inputs.pop("_approval_token", None)',
        'inputs.get("_approval_token", None)',
        ("tests/core/test_parts.py::test_an_approval_token_of_a_client_is_removed",),
    ),
    Fault(
        "core-parse-error-code",
        "A body that is not JSON gets -32602 (invalid params) instead of -32700 (parse error).",
        f"{CORE}/dialects/decode.py",
        "        raise JSONParseError from None\n",
        '        raise invalid("body", "must be JSON") from None\n',
        ("tests/server/test_bad_json.py::test_invalid_json_or_utf_8_is_a_parse_error",),
    ),
    Fault(
        "client-repeats-sends",
        "A message that may have arrived is sent again, so the skill may run twice.",
        f"{CLIENT}/exchange.py",
        "retryable = spec.safe or not error.sent",
        "retryable = True",
        ("tests/client/test_retries.py::test_after_a_broken_connection_only_reads_are_retried",),
    ),
    Fault(
        "client-resumes-from-old-event",
        "A stream is always resumed after its first event, so later events come twice.",
        f"{CLIENT}/streams.py",
        "            self._last_event_id = event_id\n",
        "            self._last_event_id = self._last_event_id or event_id\n",
        ("tests/client/test_cuts.py::test_no_event_is_lost_or_repeated_when_connections_break",),
    ),
    Fault(
        "auth-takes-expired-tokens",
        "An expired token is accepted.",
        JWT,
        "            options=self._options,\n",
        '            options={**self._options, "verify_exp": False},\n',
        ("tests/auth/test_jwt.py::test_clocks_may_differ_by_a_minute",),
    ),
    Fault(
        "auth-algorithm-of-the-token",
        "A token chooses the algorithm it is verified with, whatever the key and the options say.",
        JWT,
        "algorithms=[*key.algorithms & self._algorithms],",
        'algorithms=[jwt.get_unverified_header(token)["alg"]],',
        ("tests/auth/test_jwt.py::test_only_the_configured_algorithms_are_accepted",),
    ),
    Fault(
        "middleware-owner-without-issuer",
        "Users with the same name at two issuers see each other's tasks.",
        f"{SERVER}/middleware/auth.py",
        "map(_escaped, (namespace, issuer, name))",
        "map(_escaped, (namespace, name))",
        (
            "tests/middleware/test_authentication.py"
            "::test_one_name_of_two_issuers_is_two_principals",
        ),
    ),
    Fault(
        "middleware-origin-open",
        "A page of any other host may call the agent as long as the scheme is the same.",
        f"{SERVER}/middleware/front.py",
        'return parsed.netloc != headers.get("host") or parsed.scheme != scope["scheme"]',
        'return parsed.netloc != headers.get("host") and parsed.scheme != scope["scheme"]',
        ("tests/server/test_bad_http.py::test_a_web_page_of_another_origin_is_refused",),
    ),
    Fault(
        "middleware-origin-by-ending",
        "A page of another host may call the agent if that host's name ends with the agent's.",
        f"{SERVER}/middleware/front.py",
        'return parsed.netloc != headers.get("host") or parsed.scheme != scope["scheme"]',
        """own = parsed.netloc.endswith(headers.get("host", ""))
    return not own or parsed.scheme != scope["scheme"]""",
        ("tests/middleware/test_origin.py::test_a_page_of_a_similar_origin_may_not_call",),
    ),
    Fault(
        "modules-approval-for-all-calls",
        "One approval lets a module make the same call as often as it likes.",
        f"{SERVER}/modules/approval.py",
        "if self._call_counts[key] > self.granted.count(key):",
        "if key not in self.granted:",
        ("tests/server/test_approval.py::test_a_nested_call_is_approved_once_and_runs_once",),
    ),
    Fault(
        "modules-access-fails-open",
        "When the access rules raise an error, every caller may call every skill.",
        f"{SERVER}/modules/access.py",
        """            logger.exception("Access check of %s failed", clean(skill_id), extra=extra)
            return AccessVerdict(False)
""",
        """            logger.exception("Access check of %s failed", clean(skill_id), extra=extra)
            return AccessVerdict(True)
""",
        ("tests/server/test_identity.py::test_an_acl_that_raises_hides_everything",),
    ),
    Fault(
        "engine-missing-await-on-owner",
        "An await is missing, so every caller can read and set the webhooks of every task.",
        f"{SERVER}/engine/handler.py",
        "        record = await self.admission.get_own_task(params.task_id, request.caller)\n"
        "        trace = Trace.of_task(record.task.metadata)\n",
        "        self.admission.get_own_task(params.task_id, request.caller)\n"
        "        trace = None\n",
        (
            "tests/server/test_isolation.py"
            "::test_a_foreign_id_gets_the_same_response_as_an_unknown_one",
        ),
    ),
    Fault(
        "engine-ignores-idempotency-key",
        "A send that is repeated with its Idempotency-Key starts a second task.",
        f"{SERVER}/engine/admission.py",
        "            key=key,\n",
        "",
        ("tests/server/test_repeated.py::test_a_repeated_send_returns_the_existing_task",),
    ),
    Fault(
        "engine-resumes-unchecked",
        "An answer that does not fit the skill's schema ends the task instead of being refused.",
        f"{SERVER}/engine/run.py",
        """        if pause.question is not None:  # the answer may have changed the inputs
            await self._preflight()
        chosen_skill_id = None""",
        "        chosen_skill_id = None",
        (
            "tests/server/test_conversations.py"
            "::test_an_invalid_answer_is_refused_and_the_task_stays_paused",
        ),
    ),
    Fault(
        "engine-answers-an-earlier-question",
        "A late answer to an earlier question is taken as the answer to the current one.",
        f"{SERVER}/engine/change.py",
        " or pause not in (None, current.resume)",
        "",
        ("tests/server/test_change.py::test_an_answer_to_an_earlier_question_changes_nothing",),
    ),
    Fault(
        "engine-writes-under-a-lost-lease",
        "A run keeps writing to a task that another run of this replica has taken over.",
        f"{SERVER}/engine/change.py",
        "lease not in (live_task.lease, None) or pause",
        "pause",
        ("tests/server/test_change.py::test_a_run_with_another_lease_changes_nothing",),
    ),
    Fault(
        "store-keeps-refused-tasks",
        "A task that the store has refused can still be found, and never ends.",
        f"{SERVER}/store/live.py",
        "                self._remove(record.task.id)\n",
        "",
        ("tests/server/test_change.py::test_a_task_that_the_store_refused_does_not_exist",),
    ),
    Fault(
        "engine-last-event-id-off-by-one",
        "A reader that resumes with a Last-Event-ID gets that event a second time.",
        f"{SERVER}/engine/handler.py",
        "(request.last_event_id or 0) if resumes_stream",
        "max((request.last_event_id or 0) - 1, 0) if resumes_stream",
        (
            "tests/server/test_streams.py::test_a_reader_that_resumes_gets_exactly_the_missed_events",
        ),
    ),
    Fault(
        "push-private-range-open",
        "A webhook can lead into private networks, such as 10.0.0.0/8.",
        f"{CORE}/addresses.py",
        "return address.is_global and not any(",
        "return not any(",
        ("tests/push/test_addresses.py::test_a_host_with_an_internal_address_is_refused",),
    ),
    Fault(
        "push-signature-of-other-bytes",
        "The signature of a notification that is not plain ASCII is wrong.",
        f"{SERVER}/push/signing.py",
        "text = body.decode()",
        'text = body.decode("latin-1")',
        ("tests/push/test_signing.py::test_a_receiver_accepts_the_signature_of_any_text",),
    ),
    Fault(
        "push-newest-first",
        "A webhook is notified of later events before earlier ones.",
        f"{SERVER}/store/outbox.py",
        "        queue.events.append(queued_event)\n",
        "        queue.events.insert(0, queued_event)\n",
        ("tests/store/test_conformance.py::test_the_memory_store_conforms",),
    ),
    Fault(
        "memory-evicts-running-tasks",
        "A full store forgets a running task to make room for a new one.",
        f"{SERVER}/store/memory.py",
        "ended_ids = chain((stored.id for stored in ended_tasks), self._by_end)",
        "ended_ids = iter(self._tasks)",
        ("tests/server/test_memory_store.py::test_tasks_that_have_not_ended_are_never_evicted",),
    ),
    Fault(
        "sqlite-no-lease-check",
        "A replica can change a task although another replica has taken over the task's lease.",
        f"{SERVER}/store/sqlite/store.py",
        'if change.lease is not None and change.lease.epoch != task_row["epoch"]:',
        'if change.lease is not None and change.lease.epoch > task_row["epoch"]:',
        ("tests/store/test_conformance.py::test_the_sqlite_store_conforms",),
    ),
    Fault(
        "sqlite-gap-in-events",
        "A reader misses an event that was dropped from the log, and gets no error.",
        f"{SERVER}/store/sqlite/store.py",
        'if task_row is None or after < task_row["first_event"] - 1:',
        'if task_row is None or after < task_row["first_event"] - 2:',
        ("tests/store/test_conformance.py::test_the_sqlite_store_conforms",),
    ),
    Fault(
        "postgres-renews-lost-leases",
        "A replica renews a lease that another one has taken over, and both run the task.",
        f"{SERVER}/store/postgres/queries.sql",
        "    ON t.id = lease.id AND t.epoch = lease.epoch AND t.expires IS NOT NULL",
        "    ON t.id = lease.id AND t.epoch >= lease.epoch AND t.expires IS NOT NULL",
        ("tests/store/test_conformance.py::test_the_postgres_store_conforms",),
    ),
    Fault(
        "command-failed-task-exits-0",
        "`apcore-a2a call` exits with 0 although the task has failed.",
        "packages/apcore-a2a/src/apcore_a2a/command/calls.py",
        "return FAILED if state.is_terminal and state != TaskState.COMPLETED else SUCCESS",
        "return FAILED if state == TaskState.REJECTED else SUCCESS",
        ("tests/facade/test_remote.py::test_a_failed_task_exits_with_3_and_says_why",),
    ),
)


class Outcome(NamedTuple):
    """The verdict of the tests on a fault."""

    verdict: str
    detail: str


class BrokenError(Exception):
    """A fault cannot be seeded."""


def main(arguments: Sequence[str], root: Path = ROOT, faults: Sequence[Fault] = FAULTS) -> int:
    """List or run faults; return 0 if all were found, else another exit code."""
    dashes = [*arguments, "--"].index("--")
    options = parser().parse_args(arguments[:dashes])
    if options.command == "list":
        for fault in faults:
            print(f"{fault.name}\n    {fault.breaks}\n    {fault.path}")
        return 0
    by_name = {fault.name: fault for fault in faults}
    if unknown := {*options.names} - {*by_name}:
        parser().error(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [by_name[name] for name in options.names or by_name]
    selection = [] if options.full else ["-m", default_selection()]
    signal.signal(signal.SIGTERM, interrupt)  # else SIGTERM would leave the fault in the file
    try:
        return run(root, chosen, [*selection, *arguments[dashes + 1 :]])
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments before `--`."""
    result = argparse.ArgumentParser(prog="faults.py", description=__doc__.partition("\n")[0])
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="show the faults")
    usage = "%(prog)s [NAME ...] [--full] [-- PYTEST ARGUMENTS]"
    run_parser = commands.add_parser(
        "run", help="check whether the tests find the faults", usage=usage
    )
    run_parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    run_parser.add_argument(
        "--full", action="store_true", help="also run tests that tools/test leaves out"
    )
    return result


def default_selection() -> str:
    """Return the marker expression of the tests that `tools/test` runs by default."""
    text = (ROOT / "tools" / "test").read_text(encoding="utf-8")
    (expression,) = re.findall(r'^DEFAULT_TESTS="(.+)"$', text, re.MULTILINE)
    return str(expression)


def interrupt(signal_number: int, frame: object) -> NoReturn:
    """Handle the signal like Ctrl+C."""
    raise KeyboardInterrupt


def run(root: Path, faults: Sequence[Fault], pytest_arguments: Sequence[str]) -> int:
    """Run the tests against each fault; return 0 if they find all."""
    found_count = 0
    for fault in faults:
        started = time.monotonic()
        try:
            with seeded(root, fault):
                outcome = run_tests(root, [*fault.tests, *pytest_arguments])
        except BrokenError as error:
            outcome = Outcome("BROKEN", str(error))
        found_count += outcome.verdict == "found"
        seconds = time.monotonic() - started
        print(f"{outcome.verdict:7} {fault.name} ({seconds:.0f} s): {outcome.detail}", flush=True)
    print(f"{found_count} of {len(faults)} found")
    return 0 if found_count == len(faults) else 1


@contextmanager
def seeded(root: Path, fault: Fault) -> Iterator[None]:
    """Seed a fault in its file; afterwards restore the file byte for byte.

    Raises:
        BrokenError: The fault cannot be seeded.
    """
    file = root / fault.path
    status_command = ["git", "status", "--porcelain", "--", fault.path]
    if subprocess.run(status_command, cwd=root, capture_output=True, check=True).stdout:
        raise BrokenError(f"{fault.path} has changes that are not committed")
    before = file.read_bytes() if file.exists() else b""
    if (count := before.count(fault.old.encode())) != 1:
        raise BrokenError(f"{fault.path} has the snippet {count} times")
    try:
        file.write_bytes(before.replace(fault.old.encode(), fault.new.encode()))
        yield
    finally:
        file.write_bytes(before)


def run_tests(root: Path, arguments: Sequence[str]) -> Outcome:
    """Run pytest on the code as it is."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    # Python identifies compiled code by the modification time (in seconds) and size of its source,
    # which can be the same with a fault and without.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl+C reaches only us; we can kill all that tests start
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            return Outcome("HUNG", f"the tests did not end in {TIME_LIMIT:g} s")
        finally:
            end(process)
    last = output.strip().rpartition("\n")[2]
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+\.py.*?)(?: - .*)?$", output, re.MULTILINE)
    return Outcome(VERDICTS.get(process.returncode, "BROKEN"), ", ".join(failed) or last)


def end(process: subprocess.Popen[str]) -> None:
    """Let pytest stop the processes that its tests have started, then kill the rest."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
