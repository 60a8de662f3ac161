"""Programs as agents: OpenClaw, Claude Code, Codex, and any other program."""

import asyncio
import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from apcore_a2a_bridges import Turn, load_bridge
from apcore_a2a_bridges.coding_agents import ClaudeCodeAgent, CodexAgent
from apcore_a2a_bridges.command import Command, CommandAgent, OpenClawAgent
from apcore_a2a_client import Part, Task

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import wait_until
from tests.server.principals import HeaderAuth

from .acceptance import Acceptance, Script, client_of, serving_agent

pytestmark = [pytest.mark.anyio, pytest.mark.process]

PROGRAM = Path(__file__).with_name("program.py")


@asynccontextmanager
async def answering_server(script: Script) -> AsyncIterator[int]:
    """Serve the answers of a script, with a memory for each session; yield the port."""
    memories: dict[str, list[str]] = defaultdict(list)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readline())
        memory = memories[request["session"]]
        memory.append(request["prompt"])
        answer_task = asyncio.create_task(say(memory, writer))
        disconnect = asyncio.create_task(reader.read())
        await asyncio.wait({answer_task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        answer_task.cancel()  # the program was killed, or has its answer
        disconnect.cancel()
        writer.close()

    async def say(memory: list[str], writer: asyncio.StreamWriter) -> None:
        text = ""
        try:
            async for piece in script.say(*memory):
                text += piece
                writer.write(json.dumps({"piece": piece}).encode() + b"\n")
                await writer.drain()
        except RuntimeError as error:
            writer.write(json.dumps({"failure": str(error)}).encode() + b"\n")
        memory.append(text)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Programs(Acceptance):
    imitated: ClassVar[str]

    def program(self, command: list[str], **options: Any) -> CommandAgent:
        raise NotImplementedError

    @pytest.fixture
    async def url(self, script: Script, tmp_path: Path) -> AsyncIterator[str]:
        async with answering_server(script) as port:
            command = [sys.executable, "-S", str(PROGRAM), self.imitated, str(port)]
            agent = self.program(command, cwd=tmp_path, name="program")
            async with serving_agent(agent, auth=HeaderAuth(), execution_timeout=60) as url:
                yield url


class TestAnyProgram(Programs):
    """Texts that a program writes without a pause come in one piece."""

    imitated = "text"
    streams = False
    usage = None

    def program(self, command: list[str], **options: Any) -> CommandAgent:
        return CommandAgent([*command, "--session-id", "{session}"], **options)


class TestOpenClaw(Programs):
    imitated = "openclaw"
    streams = False

    def program(self, command: list[str], **options: Any) -> CommandAgent:
        return OpenClawAgent(command=command, agent_id="main", thinking="off", **options)


class TestClaudeCode(Programs):
    imitated = "claude"

    def program(self, command: list[str], **options: Any) -> CommandAgent:
        return ClaudeCodeAgent(command=command, args=["--model", "sonnet"], **options)


class TestCodex(Programs):
    imitated = "codex"
    streams = False

    def program(self, command: list[str], **options: Any) -> CommandAgent:
        return CodexAgent(command=command, args=["--sandbox", "read-only"], **options)

    async def test_only_the_tokens_of_the_turn_are_counted(self, url: str) -> None:
        async with client_of(url, "ada") as client:
            task = await client.send_message("One")
            task = await client.send_message("Two", context_id=task.context_id)
        assert task.metadata["usage"] == {"inputTokens": 7, "outputTokens": 3}


async def test_codex_gets_the_conversation_again_if_its_session_is_lost(tmp_path: Path) -> None:
    script = Script()
    async with answering_server(script) as port:
        command = [sys.executable, "-S", str(PROGRAM), "codex", str(port)]
        agent = CodexAgent(command=command, cwd=tmp_path)
        async with serving_agent(agent) as url, client_of(url) as client:
            first = await client.send_message("My name is Ada")
            shutil.rmtree(tmp_path)  # the imitated Codex keeps its sessions there
            os.mkdir(tmp_path)
            task = await client.send_message("Who am I?", context_id=first.context_id)
    assert task.status.state == "completed"
    (prompt,) = script.prompts[-1]
    assert "User: My name is Ada" in prompt
    assert prompt.endswith("Who am I?")


async def answer_of(code: str, message: Any = "Hello", **options: Any) -> Task:
    """Serve a program of Python code, send it a message, and return the task."""
    agent = CommandAgent([sys.executable, "-c", code, *options.pop("args", ())], **options)
    async with serving_agent(agent) as url, client_of(url) as client:
        return await client.send_message(message)


async def test_the_text_is_the_input_or_an_argument() -> None:
    echo = "import sys; print(sys.argv[1:], sys.stdin.read(), end='')"
    assert (await answer_of(echo)).value == "[] Hello"
    assert (await answer_of(echo, args=["say", "{text}"])).value == "['say', 'Hello'] "
    assert (await answer_of(echo, "a\0b", args=["{text}"])).value == "['ab'] "
    assert (await answer_of("print('not read', end='')", "x" * 10**6)).value == "not read"


async def test_json_is_data_except_for_the_member_that_an_option_names() -> None:
    code = 'print(\'{"answer": "Hi", "n": 1}\')'
    assert (await answer_of(code, output="json")).value == {"answer": "Hi", "n": 1}
    task = await answer_of(code, output="json", output_key="answer")
    assert task.value == ["Hi", {"n": 1}]
    lines = f"{code}; print('a warning'); print('{{warning}} x'); {code}"
    task = await answer_of(lines, output="lines", output_key="answer")
    assert task.value == ["HiHi", {"n": 1}]


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ('[{"n": 1}, {"n": 2}]', {"result": [{"n": 1}, {"n": 2}]}),
        ('[warning] {old}\n[1] started\n{"n": 1}\nDone', {"n": 1}),
        ('warning\n[{"n": 1}]\n', {"result": [{"n": 1}]}),
        ('Answer: {"n": 1}.', {"n": 1}),
        ("3", {"result": 3}),
    ],
)
async def test_the_json_document_of_an_output_may_be_among_other_lines(
    output: str, value: Any
) -> None:
    assert (await answer_of(f"print({output!r})", output="json")).value == value


async def test_a_document_after_many_lines_of_a_log_is_read() -> None:
    code = "print('[INFO] a step\\n' * 100_000 + '{\\n' * 1000 + 'x')"
    task = await answer_of(code + "; print('{\"n\": 1}')", output="json")
    assert task.value == {"n": 1}


async def test_a_long_json_document_in_the_error_output_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys; print('{\"text\": \"' + 'x' * 10_000 + '\"}', file=sys.stderr)"
    task = await answer_of(code, output="json", output_key="text")
    assert task.value == "x" * 10_000
    monkeypatch.setattr("apcore_a2a_bridges.command.MAX_OUTPUT_BYTES", 5000)
    task = await answer_of(code, output="json", output_key="text")
    assert task.status.state == "failed"
    # the error output beside a document is not limited
    task = await answer_of(f"{code}; print('{{}}')", output="json")
    assert task.status.state == "completed"


async def test_braces_in_the_error_output_do_not_hide_why_a_program_failed() -> None:
    errors: list[Any] = []
    code = "import sys; print('cannot read {config}', file=sys.stderr); sys.exit(3)"
    await answer_of(code, output="json", after=lambda *args: errors.append(args[-1]))
    assert "exit code 3: cannot read {config}" in str(errors[0])


async def test_text_under_an_output_key_is_text_of_the_turn(tmp_path: Path) -> None:
    class ResumingAgent(CommandAgent):
        """Runs its command again if the session is lost, and there was no text yet."""

        def commands(self, *args: Any) -> list[Command]:
            return [*super().commands(*args)] * 2

        def is_session_problem_in(self, problem: str) -> bool:
            return True

    follows: list[bool] = []

    def part_out(event: Any, turn: Turn) -> Any:
        follows.append(event.follows_text)
        return event.value

    code = 'print(\'{"n": 1}\\n{"say": ""}\\n{"say": "Hi"}\\n{"say": "you"}\'); raise SystemExit(1)'
    options: dict[str, Any] = {"output": "lines", "output_key": "say", "part_out": part_out}
    agent = ResumingAgent([sys.executable, "-c", code], **options)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert (await client.send_message("Hello")).status.state == "failed"
    assert follows == [False, False, False, True]


async def test_text_is_streamed_as_it_is_written(tmp_path: Path) -> None:
    release_file = tmp_path / "go-on"
    code = (
        "import os, sys, time\nprint('one', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('two', end='')"
    )
    agent = CommandAgent([sys.executable, "-c", code, str(release_file)], name="slow")
    async with serving_agent(agent) as url, client_of(url) as client:
        pieces: list[str] = []
        async for piece in client.stream("slow", "Go"):
            pieces.append(piece)
            release_file.touch()  # the program waits for this file after its first line
    assert "".join(pieces) == "one\ntwo"


async def test_bytes_of_one_character_are_decoded_together() -> None:
    code = (
        "import sys, time; out = sys.stdout.buffer\n"
        "for byte in 'häß…'.encode(): out.write(bytes([byte])); out.flush(); time.sleep(0.01)"
    )
    assert (await answer_of(code)).value == "häß…"


async def test_a_character_that_the_output_cuts_off_is_replaced() -> None:
    code = "import sys; sys.stdout.buffer.write('h\u00e4'.encode()[:-1])"
    assert (await answer_of(code)).value == "h\ufffd"


async def test_clients_do_not_see_why_a_program_failed() -> None:
    task = await answer_of("import sys; print('secret', file=sys.stderr); sys.exit(3)")
    assert task.status.state == "failed"
    assert "secret" not in str(task)
    async with serving_agent(CommandAgent("/no/such/program")) as url, client_of(url) as client:
        task = await client.send_message("Hello")
    assert task.status.state == "failed"
    assert "/no/such" not in str(task.status)


async def test_files_are_written_to_a_temporary_folder(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "text, *lines = sys.stdin.read().splitlines()\n"
        "paths = [pathlib.Path(line[2:]) for line in lines if line.startswith('- /')]\n"
        "print(text, *[(p.name, p.read_bytes()) for p in paths], paths[0].parent, sep='|', end='')"
    )
    files = [
        Part(raw=b"\x00\xff", filename="../../etc/passwd"),
        Part(raw=b"a,b", filename="-rf.csv", media_type="text/csv"),
        Part(raw=b"", filename="名" * 100 + ".csv"),
    ]
    task = await answer_of(code, [Part(text="Read"), *files])
    text, first, second, third, folder = task.value.split("|")
    assert text == "Read"
    assert first == str(("1-passwd", b"\x00\xff"))
    assert second == str(("2-rf.csv", b"a,b"))
    assert third == str(("3-" + "名" * 65 + ".csv", b""))
    assert not await asyncio.to_thread(os.path.exists, folder)


STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("child").write_text("ready")
time.sleep(600)
'''])
while not os.path.exists("child"):
    time.sleep(0.01)
print(child.pid, flush=True)
if len(sys.argv) > 1:
    time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_cancellation_ends_even_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STUBBORN, "stay"]
    agent = CommandAgent(command, cwd=tmp_path, grace=0.5)
    async with serving_agent(agent) as url, client_of(url) as client:
        events = client.stream_message("Go")
        pid = 0
        async for event in events:
            if artifact := getattr(event, "artifact", None):
                pid = int(artifact.parts[0].text)
                task_id = event.task_id  # type: ignore[union-attr]  # it is an artifact update
                break
        assert is_running(pid)
        assert (await client.cancel_task(task_id)).status.state == "canceled"
        await wait_until(lambda: not is_running(pid))
        await events.aclose()


async def test_children_that_a_program_leaves_running_end_with_it(tmp_path: Path) -> None:
    agent = CommandAgent([sys.executable, "-c", STUBBORN], cwd=tmp_path)
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("Go")
    await wait_until(lambda: not is_running(int(task.value)))


async def test_the_last_line_is_read_though_a_child_keeps_the_output_open(tmp_path: Path) -> None:
    code = STUBBORN.replace("print(child.pid", """print('{"n": 1}', end=''""")
    agent = CommandAgent([sys.executable, "-c", code], output="lines", cwd=tmp_path)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert (await client.send_message("Go")).value == {"n": 1}


def test_the_example_names_programs() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/command/agent.yaml"
    agents = yaml.safe_load(path.read_text())["agents"].values()
    assert [load_bridge(config).name for config in agents] == ["claude-code", "sort"]


def test_a_config_selects_the_program() -> None:
    for name in ("openclaw", "claude-code", "codex"):
        assert load_bridge({"bridge": name}).name == name
    assert load_bridge({"bridge": "command", "command": "cat -u"}).name == "cat"
    with pytest.raises(ValueError, match="name of a program"):
        CommandAgent([])


async def test_programs_do_not_inherit_the_secrets_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("APCORE_A2A_AUTH_KEY", "hunter2")
    monkeypatch.setenv("APCORE_JWT_SECRET", "hunter2")
    monkeypatch.setenv("HOMEWORK", "essay")
    code = "import os; print(*sorted(os.environ), *os.environ.values())"
    agent = CommandAgent([sys.executable, "-c", code], env={"APCORE_OWN": "given"})
    async with serving_agent(agent) as url, client_of(url) as client:
        output = (await client.send_message("Hello")).value
    assert "HOMEWORK" in output
    assert "given" in output
    assert "hunter2" not in output


@pytest.mark.parametrize("argument", ["{text}", "{text} {text}"])
async def test_a_text_that_begins_like_an_option_is_not_read_as_one(argument: str) -> None:
    parse = (
        "from argparse import ArgumentParser; p = ArgumentParser(); p.add_argument('words'); "
        "p.add_argument('--wipe', action='store_true'); print(p.parse_args())"
    )
    agent = CommandAgent([sys.executable, "-c", parse, argument])
    async with serving_agent(agent) as url, client_of(url) as client:
        output = (await client.send_message("--wipe=1")).value
    assert "wipe=False" in output
    assert "--wipe" in output
