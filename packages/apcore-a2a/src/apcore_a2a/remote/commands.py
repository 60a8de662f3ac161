"""What `card`, `call` and `tasks` do."""

import argparse
import sys
from typing import Any

from apcore_a2a_client import (
    A2AError,
    A2AServerError,
    InvalidParamsError,
    Message,
    Part,
    SyncA2AClient,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from apcore_a2a_client.tasks import after

from .arguments import credentials
from .files import save
from .printers import Printer

DONE, WRONG, UNREACHABLE, FAILED, WAITING, INTERRUPTED = 0, 1, 2, 3, 4, 130


def do(arguments: argparse.Namespace) -> int:
    """Do the command that *arguments* are for; the exit code."""
    out = _printer(plain=arguments.json or not sys.stdout.isatty())
    try:
        with SyncA2AClient(
            arguments.url,
            auth=credentials(arguments),
            headers=dict(arguments.header),
            timeout=arguments.timeout,
            protocol=arguments.protocol,
        ) as client:
            return COMMANDS[arguments.command](client, arguments, out)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (A2AError, OSError) as error:
        out.error(error, error.errors if isinstance(error, InvalidParamsError) else ())
        return FAILED if isinstance(error, A2AServerError) else UNREACHABLE


def _printer(*, plain: bool) -> Printer:
    if plain:
        return Printer()
    from .terminal import Terminal  # rich is slow to import

    return Terminal()


def card(client: SyncA2AClient, arguments: argparse.Namespace, out: Printer) -> int:
    """Show the agent's card."""
    out.card(client.extended_card() if arguments.extended else client.agent_card)
    return DONE


def call(client: SyncA2AClient, arguments: argparse.Namespace, out: Printer) -> int:
    """Call a skill, or answer a task, and show what comes of it."""
    message = message_of(arguments)
    while True:
        task = _streamed if arguments.stream else _called
        ended = task(client, message, arguments, out)
        answer = out.ask(ended) if ended.status.state.is_paused else None
        if answer is None:
            return _ended(ended, arguments, out, shown=arguments.stream)
        arguments.task, arguments.context = ended.id, ended.context_id
        message = Message.of(answer)


def message_of(arguments: argparse.Namespace) -> Message:
    """The message that a call sends: its input, and the files behind it."""
    nothing: list[Part] = [] if arguments.file else [Part(data={})]
    given = nothing if arguments.input is None else [Part.of(arguments.input)]
    return Message.of([*given, *arguments.file])


def _called(
    client: SyncA2AClient, message: Message, arguments: argparse.Namespace, out: Printer
) -> Task:
    """Begin a task, and show its progress until it is settled."""
    task = client.send_message(message, blocking=False, **_about(arguments))
    return _followed(client, task, out)


def _followed(client: SyncA2AClient, task: Task, out: Printer) -> Task:
    try:
        with out.progress() as tell:
            tell(task)
            for event in client.follow(task):
                task = after(task, event)
                tell(task)
    except KeyboardInterrupt:
        _cancel(client, task)
        raise
    return task


def _streamed(
    client: SyncA2AClient, message: Message, arguments: argparse.Namespace, out: Printer
) -> Task:
    """Begin a task, and show its chunks as they come."""
    task: Task | None = None
    try:
        for event in client.stream_message(message, **_about(arguments)):
            task = after(task, event)
            if isinstance(event, TaskArtifactUpdateEvent):
                out.chunk(event.artifact.value)
    except KeyboardInterrupt:
        _cancel(client, task)
        raise
    out.end()
    assert task
    return task


def _about(arguments: argparse.Namespace) -> dict[str, Any]:
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
        print(f"\nCanceled task {task.id}", file=sys.stderr)


def _ended(task: Task, arguments: argparse.Namespace, out: Printer, *, shown: bool = False) -> int:
    """Show what came of a task."""
    if task.status.state.is_paused:
        out.question(task, arguments.url, arguments.skill)
        return WAITING
    if task.status.state != TaskState.COMPLETED:
        out.failure(task)
        return FAILED
    if arguments.output:
        for path in save(task, arguments.output):
            out.saved(path)
    elif not shown or not task.artifacts:
        out.result(task)
    return DONE


def tasks(client: SyncA2AClient, arguments: argparse.Namespace, out: Printer) -> int:
    """List tasks; show, follow or cancel one."""
    if not arguments.task:
        if arguments.follow or arguments.cancel or arguments.output:
            raise ValueError("--follow, --cancel and --output need a TASK")
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
        with out.progress() as tell:
            tell(task)
            for event in client.follow(task):
                task = after(task, event)
                tell(task)
    out.task(task)
    for path in save(task, arguments.output) if arguments.output else ():
        out.saved(path)
    return DONE


COMMANDS = {"card": card, "call": call, "tasks": tasks}
