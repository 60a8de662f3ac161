"""What `card`, `call` and `tasks` do."""

import os
import sys
from difflib import get_close_matches
from types import SimpleNamespace
from typing import Any

from apcore_a2a_client import (
    A2AAuthError,
    A2AError,
    A2AServerError,
    InvalidParamsError,
    Message,
    Part,
    SkillNotFoundError,
    SyncA2AClient,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from apcore_a2a_client.tasks import after

from .files import save
from .printers import Printer, clean

DONE, UNREACHABLE, FAILED, WAITING = 0, 2, 3, 4


def do(arguments: SimpleNamespace) -> int:
    """Do the command that *arguments* are for; the exit code."""
    _check(arguments)
    out = _printer(plain=arguments.as_json or not (sys.stdout and sys.stdout.isatty()))
    try:
        with SyncA2AClient(
            arguments.url,
            auth=arguments.credentials,
            headers=dict(arguments.headers),
            timeout=arguments.timeout,
            protocol=arguments.protocol,
        ) as client:
            return COMMANDS[arguments.command](client, arguments, out)
    except BrokenPipeError:  # whoever read this has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except (A2AError, OSError) as error:
        out.error(error, error.errors if isinstance(error, InvalidParamsError) else ())
        if _wants_credentials(error):
            out.hint("--auth and --api-key give credentials")
        return FAILED if isinstance(error, A2AServerError | A2AAuthError) else UNREACHABLE


def _check(arguments: SimpleNamespace) -> None:
    """Refuse what can't be meant, before anything is sent."""
    if arguments.command == "call" and arguments.task and not _given(arguments):
        raise ValueError("--task needs an answer: --input or --file")
    if arguments.command == "tasks" and arguments.task == "":
        raise ValueError("TASK is empty")
    if arguments.command == "tasks" and arguments.follow and arguments.cancel:
        raise ValueError("--follow and --cancel exclude each other")
    if arguments.command == "tasks" and not arguments.task:
        if arguments.follow or arguments.cancel or arguments.output:
            raise ValueError("--follow, --cancel and --output need a TASK")
        if arguments.limit < 1:
            raise ValueError("--limit takes a whole number, at least 1")


def _given(arguments: SimpleNamespace) -> bool:
    return arguments.input is not None or bool(arguments.files)


def _wants_credentials(error: Exception) -> bool:
    return getattr(error, "status_code", None) in (401, 403)


def _printer(*, plain: bool) -> Printer:
    if plain:
        return Printer()
    from .terminal import Terminal  # rich is slow to import

    return Terminal()


def card(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Show the agent's card."""
    out.card(client.extended_card() if arguments.extended else client.agent_card)
    return DONE


def call(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Call a skill, or answer a task, and show what comes of it."""
    message = message_of(arguments)
    while True:
        task = _streamed if arguments.stream else _called
        ended = task(client, message, arguments, out)
        try:
            answer = out.ask(ended) if ended.status.state.is_paused else None
        except KeyboardInterrupt:
            out.question(ended, arguments.url, arguments.skill)
            raise
        if answer is None:
            return _ended(ended, arguments, out)
        arguments.task, arguments.context = ended.id, ended.context_id
        message = Message.of(answer)


def message_of(arguments: SimpleNamespace) -> Message:
    """The message that a call sends: its input, and the files behind it."""
    nothing: list[Part] = [] if arguments.files else [Part(data={})]
    given = nothing if arguments.input is None else [Part.of(arguments.input)]
    return Message.of([*given, *arguments.files])


def _called(
    client: SyncA2AClient, message: Message, arguments: SimpleNamespace, out: Printer
) -> Task:
    """Begin a task, and show its progress until it is settled."""
    try:
        task = client.send_message(message, blocking=False, **_about(arguments))
    except SkillNotFoundError as error:
        raise _meant(client, arguments.skill, error) from None
    return _followed(client, task, out)


def _meant(client: SyncA2AClient, skill: str, error: SkillNotFoundError) -> SkillNotFoundError:
    """*error*, with the skill that may have been meant."""
    known = [found.id for found in client.agent_card.skills]
    meant = get_close_matches(skill, known, 1)
    if meant:
        error.args = (f"{error} (is {meant[0]} meant?)",)
    return error


def _followed(client: SyncA2AClient, task: Task, out: Printer, *, owned: bool = True) -> Task:
    """Show the progress of a task until it is settled; cancel an owned one at an interrupt."""
    try:
        with out.progress() as tell:
            tell(task)
            for event in client.follow(task):
                task = after(task, event)
                tell(task)
    except KeyboardInterrupt:
        if owned:
            _cancel(client, task)
        raise
    return task


def _streamed(
    client: SyncA2AClient, message: Message, arguments: SimpleNamespace, out: Printer
) -> Task:
    """Begin a task, and show its chunks as they come."""
    task: Task | None = None
    try:
        for event in client.stream_message(message, **_about(arguments)):
            task = after(task, event)
            if isinstance(event, TaskArtifactUpdateEvent):
                out.chunk(event.artifact.value)
    except SkillNotFoundError as error:
        raise _meant(client, arguments.skill, error) from None
    except (KeyboardInterrupt, BrokenPipeError):
        _cancel(client, task)
        raise
    out.end()
    assert task
    return task


def _about(arguments: SimpleNamespace) -> dict[str, Any]:
    # an answer goes to its task, whatever the skill
    skill = None if arguments.task else arguments.skill
    return {"skill": skill, "context_id": arguments.context, "task_id": arguments.task}


def _cancel(client: SyncA2AClient, task: Task | None) -> None:
    """Don't leave behind what nobody waits for."""
    if task and task.id and not task.status.state.is_settled:
        try:
            client.cancel_task(task.id)
        except A2AError:
            return
        print(clean(f"\nCanceled task {task.id}"), file=sys.stderr)


def _ended(task: Task, arguments: SimpleNamespace, out: Printer) -> int:
    """Show what came of a task."""
    if task.status.state.is_paused:
        out.question(task, arguments.url, arguments.skill)
    elif task.status.state != TaskState.COMPLETED:
        out.failure(task)
    elif arguments.output and task.artifacts:
        for path in save(task, arguments.output):
            out.saved(path)
    elif not (out.chunks and task.artifacts):
        out.result(task)
    return _code(task)


def _code(task: Task) -> int:
    """The exit code that tells how *task* is."""
    state = task.status.state
    if state.is_paused:
        return WAITING
    return FAILED if state.is_terminal and state != TaskState.COMPLETED else DONE


def tasks(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """List tasks; show, follow or cancel one."""
    if not arguments.task:
        page = client.list_tasks(
            arguments.context,
            state=arguments.state,
            page_size=arguments.limit,
            cursor=arguments.cursor,
            history_length=0,
        )
        out.tasks(page)
        return DONE
    task = client.cancel_task(arguments.task) if arguments.cancel else None
    task = task or client.get_task(arguments.task)
    if arguments.follow:
        task = _followed(client, task, out, owned=False)
    out.task(task)
    for path in save(task, arguments.output) if arguments.output else ():
        out.saved(path)
    return _code(task) if arguments.follow else DONE


COMMANDS = {"card": card, "call": call, "tasks": tasks}
