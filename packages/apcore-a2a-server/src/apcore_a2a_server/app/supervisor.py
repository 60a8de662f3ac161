"""The parent of worker processes: starts them, restarts those that end, and stops them.

Workers are forked, so that they can serve objects that can't be sent to other processes. The parent
runs no event loop and no threads, which would not survive a fork.
"""

import logging
import os
import pickle
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from apcore_a2a_server.modules.processes import signal_name

logger = logging.getLogger("apcore_a2a_server")

REPEATED_SIGNAL_WINDOW = 0.1
"""Seconds within which a second signal counts as a repetition of the first."""
RESTART_PAUSES = (0.5, 1, 2, 5, 10, 30, 60)
"""Seconds before a worker is started again; the last pause is repeated for all further starts."""
STABLE_AFTER = 60  # seconds; if a worker ran longer, its pauses start over
DRAIN_MARGIN = 10  # seconds beyond the shutdown timeout before a worker is killed
ABORT_TIMEOUT = 5  # seconds before a worker that should abort is killed
ABORT = b"abort"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class WorkerError(RuntimeError):
    """A worker ended before it could serve."""


class StartReport(NamedTuple):
    """The report of a process that serves.

    Attributes:
        skills: The number of skills.
        explorer: The path of the explorer, or None.
    """

    skills: int
    explorer: str | None


@dataclass
class Worker:
    """The worker that runs in this process.

    Attributes:
        number: Its number, from 0.
        link: Its connection to the parent, which is closed when the parent ends.
        has_reported: Whether it has reported its start or its failure.
    """

    number: int
    link: socket.socket
    has_reported: bool = False

    def report(self, outcome: StartReport | BaseException) -> None:
        """Report to the parent that this process serves, or why it does not."""
        self.has_reported = True
        with suppress(OSError):  # the parent is gone
            self.link.sendall(_pack(outcome))
            self.link.shutdown(socket.SHUT_WR)


def _pack(outcome: StartReport | BaseException) -> bytes:
    if isinstance(outcome, StartReport):
        return pickle.dumps(outcome)
    notes = ["".join(traceback.format_exception(outcome))]
    try:
        packed = pickle.dumps((type(outcome), outcome.args, {**vars(outcome), "__notes__": notes}))
        _unpack(packed)
    except Exception:  # errors may have attributes, and classes, that can't be pickled
        return _pack(WorkerError(f"{type(outcome).__name__}: {outcome}"))
    return packed


def _unpack(packed: bytes) -> StartReport | BaseException:
    """Return a report; an error's `__init__` is not called, because its parameters are unknown."""
    outcome: Any = pickle.loads(packed)  # from a fork of this process
    if isinstance(outcome, StartReport):
        return outcome
    error_class, args, attributes = outcome
    error: BaseException = error_class.__new__(error_class, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


@dataclass(eq=False)
class _Process:
    """A worker, as its parent sees it.

    Attributes:
        number: Its number, from 0.
        id: The id of the process.
        link: The connection to it.
        started_at: When it was started, by `time.monotonic`.
        report: The part of its report that has arrived so far.
        serves: Whether it has reported that it serves.
    """

    number: int
    id: int
    link: socket.socket
    started_at: float = field(default_factory=time.monotonic)
    report: bytes = b""
    serves: bool = False


class Supervisor:
    """The parent of worker processes.

    Args:
        count: The number of workers.
        serve: Called in each worker; returns when the worker has been stopped.
        on_start: Called once, when all workers serve, with the last report.
        on_end: Called with the number of a worker that has ended.
        on_stop: Called before the workers are stopped.
        shutdown_timeout: Seconds for the tasks of the workers to end.
    """

    def __init__(
        self,
        count: int,
        serve: Callable[[Worker], None],
        *,
        on_start: Callable[[StartReport], None],
        on_end: Callable[[int], None],
        on_stop: Callable[[], None],
        shutdown_timeout: float,
    ) -> None:
        self._count = count
        self._serve = serve
        self._on_start = on_start
        self._on_end = on_end
        self._on_stop = on_stop
        self._shutdown_timeout = shutdown_timeout
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, _Process] = {}
        self._restarts: dict[int, float] = {}
        """When each worker that has ended is started again: times by worker number."""
        self._restart_counts = dict.fromkeys(range(count), 0)
        """How many restarts of each worker have been planned since it was last stable."""
        self._has_started = False
        self._error: BaseException | None = None
        self._signalled_at = 0.0
        self._should_stop = self._should_abort = False
        self._is_stopping = self._is_aborting = False
        self._kill_at = float("inf")

    def run(self) -> None:
        """Run the workers until SIGINT or SIGTERM; return when all of them have ended.

        Raises:
            BaseException: The error that a worker raised before it served.
            WorkerError: A worker ended before it served.
            OSError: The system has no free process, memory or file descriptor for a worker.
        """
        with self._handling_signals():
            try:
                for number in range(self._count):
                    self._start(number)
                while self._processes or not self._is_stopping:
                    self._wait()
                    self._follow_signals()
                    self._reap()
                    self._restart()
            finally:
                self._kill()
        if self._error is not None:
            raise self._error

    @contextmanager
    def _handling_signals(self) -> Generator[None]:
        """During the block, record stop signals; let them and the ends of workers wake `_wait`."""
        wakeup, self._wakeups = socket.socketpair()
        wakeup.setblocking(False)
        self._wakeups.setblocking(False)
        self._selector.register(self._wakeups, selectors.EVENT_READ)
        previous_handlers = {
            signum: signal.signal(signum, self._on_signal) for signum in STOP_SIGNALS
        }
        previous_handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._on_child)
        previous_wakeup = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous_wakeup)
            for signum, handler in previous_handlers.items():
                signal.signal(signum, handler)
            self._selector.close()
            wakeup.close()
            self._wakeups.close()

    def _on_signal(self, *_: object) -> None:
        """Record that all workers should stop, or abort; see `Server.handle_exit`."""
        now = time.monotonic()
        self._should_abort |= (
            self._should_stop and now - self._signalled_at > REPEATED_SIGNAL_WINDOW
        )
        self._should_stop = True
        self._signalled_at = now

    def _on_child(self, *_: object) -> None:
        """Do nothing: only signals with a handler wake `_wait`."""

    def _wait(self) -> None:
        """Wait for a signal, a report, the end of a worker, or the time to start or kill one."""
        deadline = min(self._kill_at, *self._restarts.values(), float("inf"))
        timeout = None if deadline == float("inf") else max(deadline - time.monotonic(), 0)
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                self._read(key.data)
            else:
                with suppress(BlockingIOError):
                    self._wakeups.recv(4096)

    def _follow_signals(self) -> None:
        """Act on the signals that have arrived, and kill the workers once it is time."""
        if self._should_stop and not self._is_stopping:
            self._stop()
        if self._should_abort and not self._is_aborting:
            self._is_aborting = True
            self._kill_at = time.monotonic() + ABORT_TIMEOUT
            for process in self._processes.values():
                with suppress(OSError):
                    process.link.send(ABORT)
        if time.monotonic() >= self._kill_at:
            self._kill()

    def _stop(self) -> None:
        """Ask all workers to let their tasks end, and then to exit."""
        self._is_stopping = True
        self._restarts.clear()
        self._on_stop()
        self._kill_at = time.monotonic() + self._shutdown_timeout + DRAIN_MARGIN
        for process in self._processes.values():
            os.kill(process.id, signal.SIGTERM)

    def _kill(self) -> None:
        """Kill the workers that are left."""
        for process in self._processes.values():
            message, extra = "Killing worker %d (process %d)", {"event": "worker_killed"}
            logger.error(message, process.number + 1, process.id, extra=extra)
            os.kill(process.id, signal.SIGKILL)
        self._kill_at = float("inf")

    def _start(self, number: int) -> None:
        """Start a worker.

        Raises:
            OSError: The system has no free process, memory or file descriptor for it.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        # a signal must not reach the worker before it has handlers of its own
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process_id = os.fork()
            if process_id == 0:
                ours.close()
                self._become_worker(Worker(number, theirs))
        except OSError:
            ours.close()
            raise
        finally:  # in this process alone: the worker never gets here
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            theirs.close()
        process = self._processes[number] = _Process(number, process_id, ours)
        self._selector.register(ours, selectors.EVENT_READ, process)

    def _become_worker(self, worker: Worker) -> NoReturn:
        """Serve in this new process, and exit."""
        exit_code = 0
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for signum in STOP_SIGNALS:  # until the server handles them
                signal.signal(signum, signal.default_int_handler)
            self._selector.close()
            for process in self._processes.values():
                process.link.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            self._serve(worker)
        except KeyboardInterrupt:
            pass
        except BaseException as error:  # nothing may return to the code that called `run`
            exit_code = 1
            if worker.has_reported:
                logger.exception("The worker crashed", extra={"event": "worker_crashed"})
            else:
                worker.report(error)
        finally:
            with suppress(BaseException):  # a late signal must not keep the process alive
                logging.shutdown()
                sys.stdout.flush()
            os._exit(exit_code)  # without waiting for threads, whose modules may hang

    def _read(self, process: _Process) -> None:
        """Read a part of a worker's report, and act on the report once it is complete."""
        try:
            part = process.link.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            part = b""
        process.report += part
        if not part:
            self._selector.unregister(process.link)
            try:
                outcome = _unpack(process.report)
            except (EOFError, pickle.UnpicklingError):  # the report is incomplete
                return
            self._on_report(process, outcome)

    def _on_report(self, process: _Process, outcome: StartReport | BaseException) -> None:
        if isinstance(outcome, StartReport):
            process.serves = True
            serving = [peer for peer in self._processes.values() if peer.serves]
            if len(serving) == self._count and not self._has_started and not self._is_stopping:
                self._has_started = True
                self._on_start(outcome)
        elif self._has_started:
            message, extra = "Worker %d could not start: %s", {"event": "worker_start_failed"}
            logger.error(message, process.number + 1, outcome, extra=extra)
        else:
            self._fail(outcome)

    def _fail(self, error: BaseException) -> None:
        """Stop, because a worker could not start."""
        self._error = self._error or error
        self._should_stop = True
        self._follow_signals()

    def _reap(self) -> None:
        """Remove the workers that have ended."""
        for process in [*self._processes.values()]:
            process_id, status = os.waitpid(process.id, os.WNOHANG)
            if process_id == 0:
                continue
            # at once: `_kill` must not end a new process with the same id
            del self._processes[process.number]
            while process.link in self._selector.get_map():
                earlier_report = process.report
                self._read(process)
                if process.report == earlier_report and process.link in self._selector.get_map():
                    self._selector.unregister(process.link)  # a child of the worker keeps it open
            process.link.close()
            self._on_end(process.number)
            self._handle_end(process, os.waitstatus_to_exitcode(status))

    def _handle_end(self, process: _Process, exit_code: int) -> None:
        """Plan to restart a worker that has ended, or stop if the server could not start."""
        if self._is_stopping:
            return
        description = f"exited with code {exit_code}"
        if exit_code < 0:
            description = f"was ended by {signal_name(-exit_code)}"
        if not self._has_started and not process.serves:
            self._fail(WorkerError(f"A worker {description} before it served"))
            return
        number = process.number
        if time.monotonic() - process.started_at > STABLE_AFTER:
            self._restart_counts[number] = 0
        pause = self._plan_restart(number)
        message = "Worker %d (process %d) %s; restarting it in %g s"
        extra = {"event": "worker_ended"}
        logger.warning(message, number + 1, process.id, description, pause, extra=extra)

    def _plan_restart(self, number: int) -> float:
        """Plan to start a worker again; return the pause before that, in seconds."""
        pause = RESTART_PAUSES[min(self._restart_counts[number], len(RESTART_PAUSES) - 1)]
        self._restart_counts[number] += 1
        self._restarts[number] = time.monotonic() + pause
        return pause

    def _restart(self) -> None:
        """Restart the workers that are due; if that fails, try again after a pause."""
        for number, due in [*self._restarts.items()]:
            if time.monotonic() < due:
                continue
            del self._restarts[number]
            try:
                self._start(number)
            except OSError as error:  # the error must not end the workers that still serve
                pause = self._plan_restart(number)
                message = "Worker %d can't be started: %s; trying again in %g s"
                extra = {"event": "worker_start_failed"}
                logger.error(message, number + 1, error.strerror, pause, extra=extra)
