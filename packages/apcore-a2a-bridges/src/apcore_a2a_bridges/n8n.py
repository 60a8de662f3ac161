"""Workflows of n8n behind a webhook or a chat trigger."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from email.message import Message
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from apcore.trace_context import TraceContext
from apcore_a2a_core import File
from apcore_a2a_core.values import is_array, is_object

from .agent import Agent
from .parts import TEXT, Json, is_mapping, text_of
from .turn import Turn

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

MAX_ATTEMPTS = 4
"""Maximum number of requests for one turn."""
CONNECT_TIMEOUT = 10.0
"""Seconds to connect; the workflow itself is limited only by the time limit of the turn."""
MAX_DELAY = 30.0
"""Maximum number of seconds between two attempts."""
REFUSED = frozenset({429, 503})
"""Statuses that mean, with a `Retry-After` header, that the workflow was not started."""
UNAVAILABLE = frozenset({429, 502, 503, 504})
"""Statuses after which an idempotent workflow is started again."""
STILL_RUNNING = 409
"""Status for a resume URL whose workflow has not reached its Wait node yet."""
TEXT_KEYS = ("output", TEXT, "response", "message")
"""Members of an answer that may be its text; n8n's AI Agent node uses `output`."""
QUESTION_KEYS = ("question", *TEXT_KEYS)
EVENT_TYPES = ("begin", "item", "end", "error")


class N8nError(RuntimeError):
    """n8n refuses the request, or its workflow fails."""


class StreamEvent(NamedTuple):
    """An event of a streamed answer.

    Attributes:
        type: `begin`, `item`, `end` or `error`.
        node: The name of the node.
        content: A piece of the answer; for `error`, the error message.
    """

    type: str
    node: str
    content: str


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an answer (a streamed event, text, a file or JSON) to chunks.

    >>> part_out({"output": "Hello"}, turn=None)
    {'text': 'Hello'}
    """
    if isinstance(event, StreamEvent):
        return event.content if event.type == "item" else None
    if not is_object(event):
        return event if isinstance(event, str | File) else {"result": event}
    return _with_text(event, TEXT if isinstance(event, _RenamedAnswer) else _text_key(event))


class _RenamedAnswer(dict[str, Any]):
    """An answer whose member `output_key` has been renamed to `text`."""


def _with_text(answer: Mapping[str, Any], key: str | None) -> Json:
    """Return an answer with its member *key* renamed to `text`; unchanged if *key* is None."""
    if key is None:
        return dict(answer)
    return {TEXT: text_of(answer[key]), **{n: v for n, v in answer.items() if n not in (key, TEXT)}}


def _text_key(answer: Mapping[str, Any], keys: Iterable[str] = TEXT_KEYS) -> str | None:
    """Return the name of the member that is the text of an answer, if there is one."""
    return next((key for key in keys if isinstance(answer.get(key), str)), None)


class N8nAgent(Agent):
    """A workflow of n8n that starts with a Webhook or Chat Trigger node.

    The workflow gets the members that n8n's chat sends: `chatInput` (the text of the user),
    `sessionId` and `action`. It also gets the other inputs, and links to files as `fileUrls`. Other
    files are sent as `files` of a multipart form. A JSON answer with `resumeUrl` is a question: the
    user's reply is sent to the Wait node of the workflow.

    Args:
        url: The production URL of the webhook.
        message_field: The member of the request's body that gets the text.
        headers: Headers of the requests, such as those for the webhook's authentication.
        nodes: Names of the nodes whose streamed pieces are sent; empty for all nodes.
        resume_key: The member of an answer that has the URL of a Wait node.
        backoff: Seconds before the second attempt; each further attempt doubles them.
        options: Options of `Agent`. A request is sent again if it has not started or resumed
            the workflow; with `idempotent` annotations, also after a lost connection or a status
            of 429 or 502 to 504.

    Raises:
        ValueError: The URL is not an http or https URL.
    """

    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        url: str,
        *,
        message_field: str = "chatInput",
        headers: Mapping[str, str] | None = None,
        nodes: Iterable[str] = (),
        resume_key: str = "resumeUrl",
        backoff: float = 0.5,
        **options: Any,
    ) -> None:
        defaults: Json = {"name": "n8n", "description": "A workflow of n8n."}
        super().__init__(**{**defaults, **options})
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise ValueError("The URL of a webhook begins with http:// or https://")
        self._url = url
        self._message_field = message_field
        self._headers = dict(headers or {})
        self._nodes = frozenset(nodes)
        self._resume_key = resume_key
        self._backoff = backoff
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
        self._clients = WeakKeyDictionary()

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Start the workflow, or resume it after a question, and yield its answer."""
        question: Json | None = None
        async with self._response(turn) as response:
            async for answer in _answers(response):
                question = question or self._question_in(answer)
                if question is None and self._is_wanted(answer):
                    has_key = is_object(answer) and self.output_key in answer
                    yield _RenamedAnswer(_with_text(answer, self.output_key)) if has_key else answer
        if question is not None:
            self._ask(turn, question)

    async def close(self) -> None:
        """Close the connections to n8n that belong to the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _is_wanted(self, answer: Any) -> bool:
        """Return whether to send an answer: with `nodes`, pieces of other nodes are left out."""
        is_piece = isinstance(answer, StreamEvent)
        return not (is_piece and self._nodes) or answer.node in self._nodes

    def _question_in(self, answer: Any) -> Json | None:
        """Return the JSON of an answer that has the URL of a Wait node; None for other answers."""
        document: Any = answer
        if isinstance(answer, StreamEvent):
            if answer.type != "item" or self._resume_key not in answer.content:
                return None
            with suppress(ValueError):
                document = json.loads(answer.content)
        if is_object(document) and isinstance(document.get(self._resume_key), str):
            return {**document}
        return None

    def _ask(self, turn: Turn, question: Json) -> None:
        resume_url = question.pop(self._resume_key)
        key = _text_key(question, QUESTION_KEYS)
        text = "The workflow waits for an answer" if key is None else question.pop(key)
        choices = question.pop("choices", None)
        turn.ask(text, question or None, choices=choices or None, state={"url": resume_url})

    @asynccontextmanager
    async def _response(self, turn: Turn) -> AsyncGenerator[Response]:
        """Yield n8n's response to a turn; the body of the response is not read yet."""
        response = await self._send(turn)
        try:
            if not response.is_success:
                raise N8nError(await _reason_in(response))
            yield response
        finally:
            await response.aclose()

    async def _send(self, turn: Turn) -> Response:
        """Send a turn to n8n; if that fails, retry with a backoff where a retry is safe."""
        import httpx

        url = self._url if turn.state is None else self._resume_url(turn.state["url"])
        headers = {**TraceContext.inject(turn.context), **self._headers}
        content, client, attempt = await self._content(turn), self._client(), 1
        while True:
            delay = min(self._backoff * 2 ** (attempt - 1), MAX_DELAY)
            try:
                request = client.build_request("POST", url, headers=headers, **content)
                response = await client.send(request, stream=True)
            except httpx.TransportError as error:
                if attempt == MAX_ATTEMPTS or not self._may_retry(error):
                    raise
            else:
                retry_delay = self._retry_delay(response, turn, delay)
                if attempt == MAX_ATTEMPTS or retry_delay is None:
                    return response
                await response.aclose()
                delay = retry_delay
            await asyncio.sleep(delay)
            attempt += 1

    def _may_retry(self, error: Exception) -> bool:
        """Return whether it is safe to send a failed request again."""
        import httpx

        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return True
        return self.annotations.idempotent

    def _retry_delay(self, response: Response, turn: Turn, delay: float) -> float | None:
        """Return the seconds to wait before another attempt; None for no further attempt."""
        status, retry_after = response.status_code, response.headers.get("retry-after", "")
        seconds = float(retry_after) if re.fullmatch(r"\d{1,6}", retry_after) else None
        if turn.state is not None and status == STILL_RUNNING:
            return delay
        if self.annotations.idempotent and status in UNAVAILABLE:
            return min(delay if seconds is None else seconds, MAX_DELAY)
        if status in REFUSED and seconds is not None:
            return min(seconds, MAX_DELAY)
        return None

    async def _content(self, turn: Turn) -> Json:
        """Return the body of a request, as options of httpx: JSON, or a form with the files."""
        body = await self._body(turn)
        files = [
            part for part in await self.convert_parts(turn.parts, turn) if isinstance(part, File)
        ]
        uploads = [_upload_of(file) for file in files if file.data is not None]
        links = [file.url for file in files if file.url is not None]
        if links:
            body = {"fileUrls": links, **body}
        if not uploads:
            return {"json": body}
        texts = {name: text_of(value) for name, value in body.items()}
        return {"data": texts, "files": uploads}

    async def _body(self, turn: Turn) -> Json:
        """Return the members that the workflow gets."""
        session = {"sessionId": turn.session_id, "action": "sendMessage"}
        if turn.state is not None:
            answer = turn.answer
            return {**session, self._message_field: text_of(answer), "answer": answer}
        mapped_input = await self.mapped_input(turn)
        if is_mapping(mapped_input):  # from the input mapper
            return {**session, **mapped_input}
        other_inputs = {n: value for n, value in turn.inputs.items() if n != self.input_key}
        return {**other_inputs, **session, self._message_field: mapped_input}

    def _resume_url(self, url: str) -> str:
        """Return the URL of a Wait node, with the scheme and host of the webhook.

        n8n makes the URL from its public address, which may not be reachable from here. And a
        workflow must not be able to redirect the user's answers and the headers to another host.
        """
        webhook, node = urlsplit(self._url), urlsplit(url)
        return urlunsplit((webhook.scheme, webhook.netloc, node.path, node.query, ""))

    def _client(self) -> AsyncClient:
        """Return the client of the running event loop."""
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
            limits = httpx.Limits(max_connections=None)
            self._clients[loop] = httpx.AsyncClient(timeout=timeout, limits=limits)
        return self._clients[loop]


def _upload_of(file: File) -> tuple[str, tuple[str, bytes, str]]:
    """Return a file as a field of a form; n8n shows it to its nodes as binary data."""
    media_type = file.media_type or "application/octet-stream"
    return "files", (file.name or "file", bytes(file.data or b""), media_type)


async def _answers(response: Response) -> AsyncIterator[Any]:
    """Yield the events of a streamed answer as they come, or else the whole answer."""
    header = Message()
    header["content-type"] = response.headers.get("content-type", "text/plain")
    header["content-disposition"] = response.headers.get("content-disposition", "")
    media_type = header.get_content_type()
    if header.get_content_maintype() != "text" and not media_type.endswith("json"):
        yield File(await response.aread(), name=header.get_filename() or "", media_type=media_type)
        return
    lines: list[str] = []
    async for line in _lines(response):
        event = _event_in(line)
        if event is None:
            lines.append(line)
        elif event.type == "error":
            raise N8nError(f"The workflow failed: {event.content}")
        else:
            yield event
    text = "\n".join(lines)
    if text.strip():
        value: Any = json.loads(text) if media_type.endswith("json") else text
        # a workflow answers with a list of items, usually only one
        yield value[0] if is_array(value) and len(value) == 1 else value


async def _lines(response: Response) -> AsyncIterator[str]:
    """Yield the lines of an answer; httpx would also split them at characters such as U+2028."""
    pieces: list[str] = []
    async for text in response.aiter_text():
        *last_pieces, rest = text.split("\n")
        for last_piece in last_pieces:
            yield "".join((*pieces, last_piece)).removesuffix("\r")
            pieces.clear()
        pieces.append(rest)
    if line := "".join(pieces):
        yield line


def _event_in(line: str) -> StreamEvent | None:
    """Return the event in a line of an answer; None if the line is not an event."""
    if not line.startswith('{"type":'):
        return None
    with suppress(ValueError):
        event = json.loads(line)
        metadata = event.get("metadata")
        if event["type"] in EVENT_TYPES and is_object(metadata):
            content = event.get("content", "")
            text = content if isinstance(content, str) else json.dumps(content)
            return StreamEvent(event["type"], str(metadata.get("nodeName", "")), text)
    return None


async def _reason_in(response: Response) -> str:
    """Return why a request has failed, for the log: the status, and the message of n8n if any."""
    reason = f"n8n answered with the status {response.status_code}"
    with suppress(ValueError, KeyError, TypeError):
        reason += f": {json.loads(await response.aread())['message']}"
    return reason
