"""The implementation of the commands that call agents, such as `card`, `call` and `tasks`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

from apcore_a2a_client import (
    A2AAuthError,
    A2AError,
    A2AServerError,
    ContentTypeNotSupportedError,
    CredentialsRefusedError,
    InvalidParamsError,
    Message,
    Restarted,
    SkillNotFoundError,
    SyncA2AClient,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TokenUnavailableError,
)
from apcore_a2a_client.tasks import apply_event

from .files import save
from .printers import Printer, ProgressLines, clean
from .sending import message_of, takes_text_only

MAX_LISTED = 20
"""Maximum number of skills that an error message lists."""
DUMB_TERMINALS = ("dumb", "unknown")
"""Values of the variable TERM for terminals whose lines can't be replaced."""
SUCCESS, UNREACHABLE, FAILED, WAITING = 0, 2, 3, 4
"""Exit codes."""


def run(arguments: SimpleNamespace) -> int:
    """Run the command in *arguments* and report its errors; return the exit code."""
    out = _printer(plain=arguments.as_json or not (sys.stdout and sys.stdout.isatty()))
    try:
        while True:
            try:
                return _perform(arguments, out)
            except CredentialsRefusedError as refusal:
                _confirm_origin(refusal, arguments, out)
    except BrokenPipeError:  # as with `| head`; without this, the flush at exit fails too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return SUCCESS
    except (A2AError, OSError) as error:
        out.error(error, error.errors if isinstance(error, InvalidParamsError) else ())
        if isinstance(error, TokenUnavailableError):
            return FAILED
        if getattr(error, "status_code", None) in (401, 403):
            out.hint("Set credentials with --auth, --api-key or --client-id")
        return FAILED if isinstance(error, A2AServerError | A2AAuthError) else UNREACHABLE


def _perform(arguments: SimpleNamespace, out: Printer) -> int:
    """Perform the command in *arguments*; return the exit code."""
    if arguments.command == "check":
        return _check(arguments, out)
    with _client(arguments, arguments.protocol) as client:
        return COMMANDS[arguments.command](client, arguments, out)


def _client(
    arguments: SimpleNamespace,
    protocol: str | None,
    http_client: Any = None,
    verify_card: Any = None,
) -> SyncA2AClient:
    """Return a client for the agent at the URL in *arguments*."""
    return SyncA2AClient(
        arguments.url,
        auth=arguments.credentials,
        headers=dict(arguments.headers),
        timeout=arguments.timeout,
        protocol=protocol,
        http_client=http_client,
        credentials_for=arguments.credentials_for,
        verify_card=verify_card,
        # Read the card only once: CredentialsRefusedError is then raised before the first call, if
        # at all, and `run` can repeat the command.
        card_ttl=inf,
    )


def _check(arguments: SimpleNamespace, out: Printer) -> int:
    """Check an agent, and print each result and a verdict."""
    from .check import CheckResult, check, verdict  # needs a2a-sdk, which is slow to import

    results: list[CheckResult] = []
    for result in check(partial(_client, arguments), arguments):
        out.check(*result)
        results.append(result)
    has_failed = any(result.outcome == "FAILED" for result in results)
    out.verdict(verdict(results), results)
    return FAILED if has_failed else SUCCESS


def _confirm_origin(
    refusal: CredentialsRefusedError, arguments: SimpleNamespace, out: Printer
) -> None:
    """Ask the user to allow the origin in the agent's card.

    Raises:
        ValueError: The user refuses, or cannot be asked.
    """
    agent, origin = refusal.agent, refusal.foreign
    problem = f"The credentials are for {agent}, but the agent's card points to {origin}"
    if not out.confirm(f"{problem}. Send them there?"):
        raise ValueError(f"{problem}. Allow it with --credentials-for {origin}")
    arguments.credentials_for = (*arguments.credentials_for, origin)


def _printer(*, plain: bool) -> Printer:
    if plain:
        return Printer()
    from .terminal import Terminal  # rich is slow to import

    return Terminal()


def card(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Show the Agent Card."""
    out.card(client.extended_card() if arguments.extended else client.agent_card)
    return SUCCESS


def call(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Call a skill or answer a task, and show the result."""
    if arguments.task and arguments.input is None and not arguments.files:
        raise ValueError("--task needs an answer: --input or --file")
    card = client.agent_card
    if arguments.skill is None and len(card.skills) == 1:
        arguments.skill = card.skills[0].id
    text_only = takes_text_only(card, arguments.skill)
    message = message_of(arguments.input, arguments.files, text_only=text_only)
    send = _send_streaming if arguments.stream else _send
    task: Task | None = None
    while True:
        try:
            task = send(client, message, arguments, out)
        except SkillNotFoundError as error:
            raise _add_suggestion(client, arguments, error) from None
        except (InvalidParamsError, ContentTypeNotSupportedError) as error:
            if task is None:
                raise _add_suggestion(client, arguments, error) from None
            # an answer was refused, and its task still waits: ask again
            out.error(error, error.errors if isinstance(error, InvalidParamsError) else ())
        try:
            answer = out.ask(task) if task.status.state.is_paused else None
        except KeyboardInterrupt:
            out.question(task, arguments.url, arguments.skill)
            raise
        if answer is None:
            return _show_outcome(task, arguments, out)
        arguments.task, arguments.context = task.id, task.context_id
        message = Message.of(answer)


def _send(
    client: SyncA2AClient, message: Message, arguments: SimpleNamespace, out: Printer
) -> Task:
    """Start or resume a task, and show its progress until it is settled."""
    task = client.send_message(message, blocking=False, **_send_options(arguments))
    return _follow(client, task, out)


def _add_suggestion(
    client: SyncA2AClient, arguments: SimpleNamespace, error: A2AServerError
) -> A2AServerError:
    """Add the closest skill id to the message of *error*, or some ids if no skill was named."""
    if "did you mean" in str(error):
        return error
    skill_ids = [skill.id for skill in client.agent_card.skills]
    if arguments.skill is None and not arguments.task and "skill" in str(error).lower():
        names = ", ".join(skill_ids[:MAX_LISTED]) + (", …" if skill_ids[MAX_LISTED:] else "")
        error.args = (f"{error}\nName one of the agent's skills after the URL: {names}",)
    closest = get_close_matches(arguments.skill or "", skill_ids, 1)
    if closest and isinstance(error, SkillNotFoundError):
        error.args = (f"{error} (did you mean {closest[0]}?)",)
    return error


@contextmanager
def _progress(out: Printer, *, streaming: bool = False) -> Generator[ProgressLines]:
    """Show the progress of a task on standard error; on most terminals, in a single line.

    Args:
        out: The printer of the command.
        streaming: Whether chunks are printed as they arrive.
    """
    lines = ProgressLines(out.progress)
    if sys.stderr and sys.stderr.isatty() and os.environ.get("TERM") not in DUMB_TERMINALS:
        from .terminal import LiveProgressLine  # rich is slow to import

        lines = LiveProgressLine(is_eager=out.shows_states and not streaming)
    try:
        yield lines
    finally:
        lines.hide()


def _follow(
    client: SyncA2AClient, task: Task, out: Printer, *, cancel_on_ctrl_c: bool = True
) -> Task:
    """Show the progress of a task until it is settled; by default, Ctrl+C cancels it."""
    try:
        with _progress(out) as progress:
            progress.show(task)
            for event in client.follow(task):
                task = apply_event(task, event)
                progress.show(task)
    except KeyboardInterrupt:
        if cancel_on_ctrl_c:
            _cancel(client, task)
        raise
    return task


def _send_streaming(
    client: SyncA2AClient, message: Message, arguments: SimpleNamespace, out: Printer
) -> Task:
    """Start or resume a task, and show its chunks and its progress as they arrive."""
    task: Task | None = None
    try:
        with _progress(out, streaming=True) as progress:
            for event in client.stream_message(message, **_send_options(arguments)):
                task = apply_event(task, event)
                if isinstance(event, TaskArtifactUpdateEvent):
                    progress.hide()
                    out.chunk(event.artifact.value)
                elif isinstance(event, Restarted) and out.chunk_count:
                    progress.hide()
                    out.restarted()
                elif progress.has_news(task):
                    out.end_chunks()
                    progress.show(task)
    except (KeyboardInterrupt, BrokenPipeError):
        _cancel(client, task)
        raise
    out.end_chunks()
    assert task
    return task


def _send_options(arguments: SimpleNamespace) -> dict[str, Any]:
    # an answer goes to the skill that the task already has
    skill = None if arguments.task else arguments.skill
    return {"skill": skill, "context_id": arguments.context, "task_id": arguments.task}


def _cancel(client: SyncA2AClient, task: Task | None) -> None:
    """Cancel *task*, unless it is settled, because the command is about to exit."""
    if task and task.id and not task.status.state.is_settled:
        try:
            client.cancel_task(task.id)
        except A2AError:
            return
        print(clean(f"\nCanceled task {task.id}"), file=sys.stderr)


def _show_outcome(task: Task, arguments: SimpleNamespace, out: Printer) -> int:
    """Show or save the result of a task, or show its question or failure; return the exit code."""
    if task.status.state.is_paused:
        out.question(task, arguments.url, arguments.skill)
    elif task.status.state != TaskState.COMPLETED:
        out.failure(task)
    elif arguments.output and task.artifacts:
        for path in save(task, arguments.output):
            out.saved(path)
    elif not (out.chunk_count and task.artifacts):
        out.result(task)
    return _exit_code(task)


def _exit_code(task: Task) -> int:
    """Return the exit code for the state of *task*."""
    state = task.status.state
    if state.is_paused:
        return WAITING
    return FAILED if state.is_terminal and state != TaskState.COMPLETED else SUCCESS


def tasks(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """List tasks; show, follow or cancel one."""
    if arguments.task == "":
        raise ValueError("TASK is empty")
    if arguments.follow and arguments.cancel:
        raise ValueError("--follow and --cancel cannot be combined")
    if not arguments.task:
        if arguments.follow or arguments.cancel or arguments.output:
            raise ValueError("--follow, --cancel and --output need a TASK")
        if arguments.limit < 1:
            raise ValueError("--limit must be a whole number, 1 or more")
        page = client.list_tasks(
            arguments.context,
            state=arguments.state,
            page_size=arguments.limit,
            cursor=arguments.cursor,
            history_length=0,
        )
        out.tasks(page)
        return SUCCESS
    task = client.cancel_task(arguments.task) if arguments.cancel else None
    task = task or client.get_task(arguments.task)
    if arguments.follow:
        task = _follow(client, task, out, cancel_on_ctrl_c=False)
    out.task(task)
    for path in save(task, arguments.output) if arguments.output else ():
        out.saved(path)
    return _exit_code(task) if arguments.follow else SUCCESS


def list_webhooks(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """List the webhooks of the caller's tasks or, for an operator, of all tasks."""
    out.webhooks(client.list_webhooks(state=arguments.state, limit=arguments.limit))
    return SUCCESS


def show_webhooks(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Show the webhooks of a task with their attempts."""
    out.webhooks(client.list_webhooks(arguments.task), with_attempts=True)
    return SUCCESS


def test_webhook(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Send a test notification to a webhook; fail if it was not delivered."""
    attempt = client.test_webhook(arguments.task, arguments.config)
    out.attempt(attempt)
    return SUCCESS if attempt.get("result") == "delivered" else FAILED


def redeliver_webhook(client: SyncA2AClient, arguments: SimpleNamespace, out: Printer) -> int:
    """Reactivate a failed webhook."""
    out.requeued(client.redeliver_webhook(arguments.task, arguments.config))
    return SUCCESS


COMMANDS = {
    "card": card,
    "call": call,
    "tasks": tasks,
    "list": list_webhooks,
    "show": show_webhooks,
    "test": test_webhook,
    "redeliver": redeliver_webhook,
}
