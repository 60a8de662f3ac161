"""Generated bodies of up to 10 MB that are costly to parse, to convert or to validate."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from apcore import Executor
from hypothesis import strategies as st

from .checking_client import check_no_leaks
from .fuzzing import COSTLY, EVIL_TEXT
from .inloop import ActionModule, app_of, echo, registry_of

SIZES = [100, 5_000, 70_000, 400_000, 1_000_000, 3_000_000, 9_500_000]  # bytes
MAX_HOLD, MAX_HOLD_RATIO = 0.1, 4.0
"""CPU time for which a body may hold up the event loop: seconds, or a multiple of json.loads."""
MAX_MEASUREMENTS = 3
"""Maximum measurements per body; one within the limit is enough, as other programs add time."""
SPACES = ["", " ", "\n", "\t ", "  \r\n"]
TRAILING_TEXTS = ["", " ", "\0", "]", "}", ",", '"', "\\", "//"]


def repeated(unit: str, size: int, opening: str = "[", closing: str = "]") -> str:
    """Return JSON of about *size* bytes that repeats a value."""
    return opening + ",".join([unit] * max(size // (len(unit) + 1), 1)) + closing


def members(unit: str, size: int) -> str:
    """Return an object of about *size* bytes, whose members have different names."""
    count = max(size // (len(unit) + 9), 1)
    return "{" + ",".join(f'"k{number}"{unit}' for number in range(count)) + "}"


def nested(opening: str, closing: str, size: int) -> str:
    """Return JSON of about *size* bytes: a zero in as many arrays or objects as fit."""
    depth = max(size // (len(opening) + len(closing)), 1)
    return opening * depth + "0" + closing * depth


def text(unit: str, size: int) -> str:
    """Return a JSON string of about *size* bytes that repeats a text."""
    escaped = json.dumps(unit)[1:-1]
    return '"' + escaped * max(size // len(escaped), 1) + '"'


SHAPES: dict[str, Callable[[int, str], str]] = {
    "nested arrays": lambda size, space: nested("[" + space, "]", size),
    "nested objects": lambda size, space: nested('{"a"' + space + ":", "}", size),
    "deep and wide": lambda size, space: repeated("[" * 25 + space + "]" * 25, size),
    "empty arrays": lambda size, space: repeated(f"[{space}]", size),
    "empty objects": lambda size, space: repeated(f"{space}{{}}", size),
    "zeros": lambda size, space: repeated(f"0{space}", size),
    "members": lambda size, space: members(f"{space}:{space}0", size),
    "duplicate members": lambda size, space: repeated(f'"k"{space}:0', size, "{", "}"),
    # a name goes on after "k0: the quote that would end it there is removed
    "long names": lambda size, space: members(f'{"n" * 500}"{space}:0', size).replace('"n', "n"),
    "short texts": lambda size, space: repeated(f'"x"{space}', size),
    "texts": lambda size, space: repeated(f'"{"x" * 95}"{space}', size),
    "a table": lambda size, space: text("1,2,3\n", size),
    "a table of JSON": lambda size, space: text('{"a": [1, 2]},', size),
    "quotes": lambda size, space: text('"', size),
    "backslashes": lambda size, space: text("\\", size),
    "surrogates": lambda size, space: text("\U0001f600", size),
    "control characters": lambda size, space: text("\x01", size),
    "an evil text": lambda size, space: text("a", size)[:-1] + '!"',
    "evil texts": lambda size, space: repeated(f'"{EVIL_TEXT}"{space}', size),
    "one long integer": lambda size, space: "7" * size,
    "long integers": lambda size, space: repeated("7" * 4299, size),
    "longer integers": lambda size, space: repeated("7" * 4301 + space, size),
    "long fractions": lambda size, space: repeated("0." + "7" * 900, size),
    "exponents": lambda size, space: repeated(f"1e308{space}", size),
    "equal objects": lambda size, space: repeated('{"a":[1]}', size),
    "base64": lambda size, space: text("AAAA", size),
}
"""Functions that return JSON, called with its size in bytes and the white space to insert."""
TEMPLATES: dict[str, str] = {
    "data": '{"parts":[{"data":HOLE}]}',
    "a member": '{"parts":[{"data":{"list":HOLE}}]}',
    "text": '{"parts":[{"text":HOLE}]}',
    "a file": '{"parts":[{"raw":HOLE,"filename":"a"}]}',
    "metadata": '{"parts":[{"text":"x"}],"metadata":{"a":HOLE}}',
    "a name": '{"parts":[{"data":{HOLE:1}}]}',
    "an unknown member": '{"parts":[{"text":"x"}],"unknown":HOLE}',
    "an id": '{"parts":[{"text":"x"}],"taskId":HOLE}',
    "parts": '{"parts":HOLE}',
    "the message": "HOLE",
}
"""Messages in which HOLE stands for costly JSON."""
PARTS = ['{"text":"x"}', '{"data":0}', '{"raw":"AA=="}', '{"url":"http://a.example"}', "{}"]


class Body(NamedTuple):
    """A description of a request, whose body may have 10 MB.

    Attributes:
        shape: The name of the costly value in the body.
        size: The size of that value, in bytes.
        space: White space in that value.
        template: The name of the message that the value is put into.
        method: The JSON-RPC method; or the path, for HTTP+JSON.
        skill: The id of the skill.
        end: Text after the JSON.
        part: A part to repeat instead of *shape*, in the template "parts"; empty for none.
    """

    shape: str
    size: int
    space: str
    template: str
    method: str
    skill: str
    end: str
    part: str

    def build(self) -> bytes:
        """Return the body of the request."""
        value = SHAPES[self.shape](self.size, self.space)
        if self.part:
            value = repeated(self.part, self.size)
        message = (TEMPLATES["parts"] if self.part else TEMPLATES[self.template]).replace(
            "HOLE", value
        )
        if message.startswith("{"):
            message = '{"messageId":"m","role":"ROLE_USER",' + message[1:]
        params = f'{{"metadata":{{"skillId":"{self.skill}"}},"message":{message}}}'
        if not self.method.startswith("/"):
            params = f'{{"jsonrpc":"2.0","id":1,"method":"{self.method}","params":{params}}}'
        return (params + self.end).encode()


METHODS = [
    *("SendMessage", "SendStreamingMessage", "GetTask", "message/send", "message/stream"),
    *("/message:send", "/message:stream", "/v1/message:send", "/apcore/whoami"),
]
bodies = st.builds(
    Body,
    shape=st.sampled_from([*SHAPES]),
    size=st.sampled_from(SIZES),
    space=st.sampled_from(SPACES),
    template=st.sampled_from(["data", "a member", *TEMPLATES]),
    method=st.sampled_from([*METHODS[:2], *METHODS]),
    skill=st.sampled_from(["echo", "costly", "nothing"]),
    end=st.sampled_from([""] * 20 + TRAILING_TEXTS),
    part=st.sampled_from([""] * 12 + PARTS),
)


class LoadedAgent:
    """An agent that gets costly bodies, which must not hold up its event loop.

    Attributes:
        outcomes: The number of responses of each status.
        longest: The longest CPU time of the event loop's thread between two ticks of 1 ms.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0
        self.defect = None  # Hypothesis shows the body of a failed check
        modules = {
            "echo": ActionModule(echo),
            "costly": ActionModule(echo, input_schema=COSTLY, output_schema=COSTLY),
        }
        self._executor = Executor(registry_of(modules))
        self._app: Any = app_of(self._executor, max_tasks=20)
        self._agent = self._app.state.agent
        self._agent.setup.state.has_started = True  # no lifespan sets it
        self._runner = asyncio.Runner()

    def __enter__(self) -> "LoadedAgent":
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.close()
        self._executor.close()

    def check(self, body: Body) -> None:
        """Send a body; check the response, and how long the body held up the event loop."""
        content = body.build()
        for number in range(MAX_MEASUREMENTS):
            started_at = time.thread_time()
            with suppress(ValueError, RecursionError):
                json.loads(content)
            allowed = max(MAX_HOLD, MAX_HOLD_RATIO * (time.thread_time() - started_at))
            hold = self._runner.run(self._send(body.method, content))
            if hold <= allowed:
                break
            assert number < MAX_MEASUREMENTS - 1, (
                f"the body held up the loop for {hold:.3f} of {allowed:.3f} s"
            )
        self.longest = max(self.longest, hold)

    async def _send(self, method: str, content: bytes) -> float:
        """Send a body; return the longest CPU time of this thread between two ticks of 1 ms."""
        longest, last = 0.0, time.thread_time()
        sending = asyncio.create_task(self._post(method, content))
        while not sending.done():
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        await sending
        assert not self._agent.setup.memory.body_bytes, "a body is still counted"
        return longest

    async def _post(self, method: str, content: bytes) -> None:
        chunks, is_over, messages = [content], asyncio.Event(), list[Any]()

        async def receive() -> Any:
            if chunks:
                return {"type": "http.request", "body": chunks.pop()}
            await is_over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        path = method if method.startswith("/") else "/"
        version = b"0.3" if "/" in method[1:] and path != "/message:send" else b"1.0"
        headers = [(b"content-type", b"application/json"), (b"a2a-version", version)]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        async with asyncio.timeout(120):
            await self._app({**scope, "headers": headers}, receive, send)
        is_over.set()
        self._judge(messages)

    def _judge(self, messages: list[Any]) -> None:
        start, *body_messages = messages
        content = b"".join(message.get("body", b"") for message in body_messages)
        self.outcomes[str(start["status"])] += 1
        assert start["status"] in (200, 400, 404, 405, 413, 415), start
        assert not body_messages[-1].get("more_body", False)
        if len(content) < 100_000:  # longer responses repeat the request
            check_no_leaks(content.decode())

    def check_leftovers(self) -> None:
        """Check that no run is left over, and print the longest CPU time."""
        assert not self._agent.engine.runs
        print(f"longest CPU time of the event loop between two ticks: {self.longest:.3f} s")
