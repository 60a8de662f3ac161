"""Run CrewAI in a thread and yield its events, without a terminal and without telemetry."""

# CrewAI is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import ContextVar, copy_context
from importlib.util import find_spec
from threading import Thread
from typing import Any

from .logs import log_at_debug
from .turn import Turn

TELEMETRY_OFF = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
"""Environment variables that turn off telemetry, version checks and tracing."""

_END = object()
"""Marker that follows the last event of a run."""
_in_run: ContextVar[bool] = ContextVar("_in_run", default=False)
"""Whether the current context belongs to a `Run`."""


class CrewAIError(RuntimeError):
    """A crew or a flow can't continue."""


class Stopped(BaseException):
    """Raised inside a canceled run. A BaseException, since CrewAI catches every `Exception`."""


class Question(BaseException):
    """Raised inside a run that has a question for the user. A BaseException, like `Stopped`.

    Args:
        text: The question.
        data: JSON that accompanies it.
    """

    def __init__(self, text: str, data: Any) -> None:
        super().__init__(text)
        self.text = text
        self.data = data


class Run:
    """A run of CrewAI in a separate thread, with an event loop that CrewAI may block.

    CrewAI calls models and tools synchronously, so the run of a canceled task can't be ended from
    outside. The run ends itself at its next event, for example the next piece of an answer.

    Args:
        start: Function that returns a coroutine, which runs the crew or the flow.
        is_wanted: Function that returns whether `events` yields an event; it is called in the
            context that emits the event.

    Attributes:
        result: The value that the coroutine of `start` has returned.
    """

    def __init__(
        self, start: Callable[[], Coroutine[Any, Any, Any]], is_wanted: Callable[[Any], bool]
    ) -> None:
        self.result: Any = None
        self._start = start
        self._is_wanted = is_wanted
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._error: BaseException | None = None
        self._is_stopped = False

    async def events(self) -> AsyncGenerator[Any]:
        """Start the run, and yield its events.

        Raises:
            BaseException: The exception that the run has raised.
        """
        context = copy_context()
        Thread(target=context.run, args=(self._main,), name="crewai", daemon=True).start()
        try:
            while (event := await self._events.get()) is not _END:
                yield event
        finally:
            self._is_stopped = True
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        """Prepare the context for CrewAI, and perform the run."""
        try:
            from crewai.events.stream_context import add_stream_sink

            detach_from_terminal()
            add_stream_sink(self._publish)
            self.result = await self._start()
        except BaseException as error:  # `events` raises it in the thread of the server
            self._error = error
        finally:
            self._put(_END)

    def _publish(self, source: Any, event: Any) -> None:
        """Pass an event on; CrewAI calls this in the thread and the context that emit it."""
        if self._is_stopped:
            raise Stopped
        if self._is_wanted(event):
            self._put(event)

    def _put(self, event: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the server has ended, and its event loop is closed
            self._is_stopped = True


class _NoTerminal:
    """A `HumanInputProvider` that raises an error instead of reading the server's terminal."""

    def setup_messages(self, context: Any) -> bool:
        """Leave the messages as they are."""
        return False

    def post_setup_messages(self, context: Any) -> None:
        """Leave the messages as they are."""

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        """Raise CrewAIError."""
        raise CrewAIError("human_input does not work inside a flow: use ask or @human_feedback")

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        """Raise CrewAIError."""
        return self.handle_feedback(formatted_answer, context)


class _FeedbackProvider:
    """A `HumanFeedbackProvider` that pauses flows in a `Run`; other flows use the terminal."""

    def request_feedback(self, context: Any, flow: Any) -> Any:
        """Pause the flow, or ask in the terminal."""
        from crewai.flow.async_feedback import ConsoleProvider, HumanFeedbackPending

        if _in_run.get():
            raise HumanFeedbackPending(context=context)
        return ConsoleProvider().request_feedback(context, flow)


def detach_from_terminal() -> None:
    """Keep CrewAI from using the terminal; call this in the context of a run."""
    from crewai.core.providers.human_input import set_provider
    from crewai.events.listeners.tracing.utils import set_suppress_tracing_messages
    from crewai.events.utils.console_formatter import set_suppress_console_output
    from crewai.flow.flow_config import flow_config

    _in_run.set(True)
    set_suppress_console_output(True)
    set_suppress_tracing_messages(True)
    set_provider(_NoTerminal())
    if flow_config.hitl_provider is None:
        flow_config.hitl_provider = _FeedbackProvider()


def silence_crewai() -> None:
    """Turn off CrewAI's telemetry, and log CrewAI's records at DEBUG.

    Environment variables that are already set stay as they are.
    """
    for variable, value in TELEMETRY_OFF.items():
        os.environ.setdefault(variable, value)
    _drop_telemetry()
    for package in ("crewai", "crewai_core"):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            log_at_debug(package, folder)


def _drop_telemetry() -> None:
    """Drop telemetry about flows that were created before telemetry was turned off."""
    from crewai.telemetry import Telemetry

    exporter = getattr(Telemetry(), "_exporter", None)
    if exporter is not None and Telemetry._is_telemetry_disabled():
        exporter.shutdown()


def input_files(turn: Turn) -> dict[str, Any] | None:
    """Return the files of the message as files of CrewAI, by name.

    Links are left out: CrewAI would load them, from any host that the client chooses.

    Raises:
        CrewAIError: The package `crewai_files` is not installed.
    """
    files = [file for file in turn.files if file.data is not None]
    if not files:
        return None
    try:
        import crewai_files
    except ImportError:
        raise CrewAIError(
            "Files need crewai_files: pip install 'crewai[file-processing]'"
        ) from None
    kinds = {"image": "ImageFile", "audio": "AudioFile", "video": "VideoFile", "text": "TextFile"}
    files_by_name: dict[str, Any] = {}
    for number, file in enumerate(files, 1):
        kind = kinds.get(file.media_type.partition("/")[0], "File")
        kind = "PDFFile" if file.media_type == "application/pdf" else kind
        source = crewai_files.FileBytes(data=file.data, filename=file.name or None)
        if file.media_type:
            source._content_type = file.media_type  # CrewAI would often guess text/plain
        name = file.name or f"file-{number}"
        while name in files_by_name:
            name = f"{number}-{name}"
        files_by_name[name] = getattr(crewai_files, kind)(source=source)
    return files_by_name
