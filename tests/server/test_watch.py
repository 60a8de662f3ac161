"""A folder of modules that is watched for changes while it is served."""

import asyncio
import logging
import mmap
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest
from apcore import Executor, Registry
from apcore.registry import scan_extensions
from apcore_a2a_server.modules.targets import bind
from apcore_a2a_server.modules.watch import Reloader, watch

from .inloop import Peer, always, app_of, contents, registry_of, serving, wait_until
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

LOGGER = "apcore_a2a_server.modules.watch"

MODULE = """
import threading
from pathlib import Path

from pydantic import BaseModel


def note(event):
    with Path(NOTES_FILE).open("a") as notes_file:
        notes_file.write(f"{event} {WORD} {threading.get_ident()}\\n")


note("import")


class Text(BaseModel):
    text: str = ""


class SayModule:
    name = "Says"
    description = "Says a word."
    version = "1.2.0"
    tags = ["text"]
    metadata = {"display": {"a2a": {"alias": "say"}}}
    input_schema = Text
    output_schema = Text

    def __init__(self):
        note("init")

    def on_load(self):
        note("load")

    def on_unload(self):
        note("unload")

    def execute(self, inputs, context):
        return {"text": WORD}
"""

META = """
name: Statistics
version: "2.0.0"
tags: [yaml]
annotations: {readonly: true}
metadata: {owner: us}
"""


@dataclass
class Folder:
    """A folder of modules, with the registry and the executor that serve them."""

    path: Path
    registry: Registry
    executor: Executor
    log: pytest.LogCaptureFixture

    @property
    def notes_file(self) -> Path:
        return self.path.with_name("notes_file")

    def source(self, word: str, more: str = "") -> str:
        """Return the source of a module that returns *word*."""
        return f"NOTES_FILE, WORD = {str(self.notes_file)!r}, {word!r}\n{MODULE}{dedent(more)}"

    def write(self, name: str, word: str, more: str = "") -> Path:
        """Write a module file atomically."""
        path, draft = self.path / name, self.path.with_name("draft")
        path.parent.mkdir(exist_ok=True)
        draft.write_text(self.source(word, more), encoding="utf-8")
        return draft.replace(path)

    async def word_of(self, skill_id: str) -> str | None:
        """Call a module and return its word, or None if there is no such module."""
        if self.registry.get(skill_id) is None:
            return None
        text: str = (await self.executor.call_async(skill_id, {}))["text"]
        return text

    async def wait_for_word(self, skill_id: str, word: str | None) -> None:
        async with asyncio.timeout(20):
            while await self.word_of(skill_id) != word:  # noqa: ASYNC110  # as in `wait_until`
                await asyncio.sleep(0.01)

    def lines(self, level: int = logging.INFO) -> list[str]:
        """Return the messages that the watch has logged."""
        records = (record for record in self.log.records if record.name == LOGGER)
        return [record.getMessage() for record in records if record.levelno >= level]

    def notes(self) -> list[str]:
        """Return the events that the modules have noted, without the threads."""
        lines = self.notes_file.read_text().splitlines() if self.notes_file.exists() else []
        return [line.rpartition(" ")[0] for line in lines]

    async def wait_for_first_scan(self) -> None:
        await wait_until(lambda: any("Watching" in line for line in self.lines()))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.create_task(watch(self.registry, self.path))
        try:
            await self.wait_for_first_scan()
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Folder]:
    """Return a folder with the module `text.stats`, which returns "one"; not watched yet."""
    caplog.set_level(logging.INFO, LOGGER)
    path = tmp_path / "extensions"
    path.mkdir()
    registry = Registry(extensions_dir=str(path))
    with closing(Executor(registry)) as executor:
        folder = Folder(path, registry, executor, caplog)
        folder.write("text/stats.py", "one")
        assert registry.discover() == 1
        yield folder


async def test_a_new_file_is_a_new_module(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "master.py").write_text(folder.source("copied"))
    async with folder.watched():
        folder.write("new.py", "new")
        shutil.copy2(tmp_path / "master.py", folder.path / "copy.py")
        await folder.wait_for_word("new", "new")
        await folder.wait_for_word("copy", "copied")
        assert await folder.word_of("text.stats") == "one"
    assert sorted(folder.lines()[1:]) == ["Added copy", "Added new"]


@pytest.mark.clock
async def test_an_edit_takes_effect_within_a_second(folder: Folder) -> None:
    durations = []
    async with folder.watched():
        for word in ("two", "six", "ten"):
            started_at = time.perf_counter()
            folder.write("text/stats.py", word)
            await folder.wait_for_word("text.stats", word)
            durations.append(time.perf_counter() - started_at)
    assert min(durations) < 1  # a busy machine may delay the others
    assert folder.lines()[1:] == ["Reloaded text.stats"] * 3


async def test_edits_of_the_same_size_within_a_second_are_detected(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python identifies compiled code by the source's size and its time in seconds."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    second = time.time_ns() // 10**9 * 10**9
    reloader = Reloader(folder.registry, folder.path)
    await reloader.update()
    for number, word in enumerate(("two", "six", "ten")):
        path = folder.write("text/stats.py", word)
        os.utime(path, ns=(second, second + number))
        await reloader.update()
        assert await folder.word_of("text.stats") == word
    assert list(folder.path.rglob("*.pyc"))


async def test_an_edit_without_a_file_system_event_takes_effect(folder: Folder) -> None:
    path = folder.path / "text" / "stats.py"
    async with folder.watched():
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            offset = memory.find(b"'one'")
            memory[offset : offset + 5] = b"'two'"
            memory.flush()
            await folder.wait_for_word("text.stats", "two")


async def test_a_deleted_file_removes_its_module(folder: Folder) -> None:
    async with folder.watched():
        (folder.path / "text" / "stats.py").unlink()
        await folder.wait_for_word("text.stats", None)
        folder.write("text/stats.py", "again")
        await folder.wait_for_word("text.stats", "again")
    assert folder.lines()[1:] == ["Removed text.stats", "Added text.stats"]


async def test_a_module_that_cannot_be_removed_stays(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> bool:
        raise RuntimeError("no")

    async with folder.watched():
        monkeypatch.setattr(folder.registry, "unregister", refuse)
        (folder.path / "text" / "stats.py").unlink()
        await wait_until(lambda: len(folder.lines()) > 1)
        assert await folder.word_of("text.stats") is not None
    assert folder.lines()[1:] == ["Can't remove text.stats, the old one stays: RuntimeError: no"]


BINDING = """
spec_version: "1.0"
bindings:
  - module_id: {module_id}
    target: "textwrap:{function}"
    description: {function}
    input_schema: {{}}
    output_schema: {{}}
"""


async def test_files_of_bindings_are_reloaded(folder: Folder) -> None:
    def write(name: str, module_id: str, function: str) -> None:
        draft = folder.path.with_name("draft")
        draft.write_text(BINDING.format(module_id=module_id, function=function))
        draft.replace(folder.path / name)

    def description(module_id: str) -> Any:
        module = folder.registry.get(module_id)
        return None if module is None else module.description

    write("old.binding.yaml", "bound.old", "dedent")
    bind(folder.registry, folder.path / "old.binding.yaml")
    async with folder.watched():
        write("new.binding.yaml", "bound.new", "dedent")
        await wait_until(lambda: description("bound.new") == "dedent")
        write("old.binding.yaml", "bound.old", "fill")
        await wait_until(lambda: description("bound.old") == "fill")
        (folder.path / "new.binding.yaml").write_text("bindings: 5")
        await wait_until(lambda: any("Can't load" in line for line in folder.lines()))
        assert description("bound.new") == "dedent"
        (folder.path / "new.binding.yaml").unlink()
        await wait_until(lambda: description("bound.new") is None)
    assert [line.partition(",")[0] for line in folder.lines()[1:]] == [
        "Added bound.new",
        "Reloaded bound.old",
        "Can't load new.binding.yaml",
        "Removed bound.new",
    ]


FUNCTIONS = """
from apcore.decorator import module

@module
def {name}() -> dict:
    '''Say a word.'''
    return {{"text": "{word}"}}

@module(id="kept")
async def kept() -> dict:
    '''Say a word.'''
    return {{"text": "{word}"}}
"""
CLIENT = """
from apcore import APCore

client = APCore()

@client.module(id="{name}")
def say() -> dict:
    '''Say a word.'''
    return {{"text": "{word}"}}
"""


async def test_changed_functions_take_effect(folder: Folder) -> None:
    file = folder.path / "say" / "functions.py"
    file.parent.mkdir()
    file.write_text(FUNCTIONS.format(name="one", word="old"))
    async with serving(folder.path, watch=True) as peer:
        await folder.wait_for_first_scan()
        agent = WatchedAgent(peer)
        assert contents((await peer.send("say.functions.one")).task) == [{"text": "old"}]

        file.write_text(FUNCTIONS.format(name="two", word="new"))
        await agent.wait_for_code("say.functions.two", None)
        await agent.wait_for_code("say.functions.one", -32601)
        for skill in ("say.functions.two", "kept"):
            assert contents((await peer.send(skill)).task) == [{"text": "new"}]

        file.unlink()
        await agent.wait_for_code("kept", -32601)
    assert folder.lines()[1:] == [
        "Reloaded kept",
        "Removed say.functions.one",
        "Added say.functions.two",
        "Removed kept",
        "Removed say.functions.two",
    ]


@pytest.mark.parametrize("broken", ["def one(:", "import nothing_of_this_name", ""])
async def test_broken_functions_leave_the_old_ones_in_service(folder: Folder, broken: str) -> None:
    file = folder.path / "functions.py"
    async with folder.watched():
        file.write_text(FUNCTIONS.format(name="one", word="old"))
        await folder.wait_for_word("functions.one", "old")
        # "" stands for an empty file
        file.write_text(f"{FUNCTIONS.format(name='one', word='new') if broken else ''}\n{broken}")
        await wait_until(lambda: "Can't load functions.py, the old one stays" in folder.log.text)
        assert await folder.word_of("functions.one") == "old"
        file.write_text(FUNCTIONS.format(name="one", word="newer"))
        await folder.wait_for_word("functions.one", "newer")


WITHOUT_MODULES = {
    "no modules": "from apcore import APCore\nclient = APCore()",
    "several clients": CLIENT.format(name="a", word="old") + "\nother = APCore()\n"
    "@other.module(id='b')\ndef say() -> dict:\n    return {}",
}


@pytest.mark.parametrize("kind", WITHOUT_MODULES)
async def test_a_file_without_modules_does_not_keep_the_folder_from_being_watched(
    folder: Folder, kind: str
) -> None:
    (folder.path / "held.py").write_text(WITHOUT_MODULES[kind])
    async with serving(folder.path, watch=True) as peer:
        await folder.wait_for_first_scan()
        (folder.path / "held.py").write_text(CLIENT.format(name="a", word="new"))
        await WatchedAgent(peer).wait_for_code("a", None)
    assert folder.lines()[1:] == ["Added a"]


@pytest.mark.parametrize("kind", WITHOUT_MODULES)
async def test_a_new_file_without_modules_is_loaded_when_it_has_some(
    folder: Folder, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "apcore_ext_held", raising=False)  # of another test
    async with folder.watched():
        (folder.path / "held.py").write_text(WITHOUT_MODULES[kind])
        await wait_until(lambda: folder.lines(logging.WARNING))
        (folder.path / "held.py").write_text(CLIENT.format(name="a", word="new"))
        await folder.wait_for_word("a", "new")


async def test_changed_functions_of_the_global_client_take_effect(folder: Folder) -> None:
    file = folder.path / "functions.py"
    # `apcore.module` adds functions to the global client
    code = FUNCTIONS.replace(".decorator", "").replace("@module\n", "@module()\n")
    async with folder.watched():
        file.write_text(code.format(name="shared", word="old"))
        await folder.wait_for_word("functions.shared", "old")
        file.write_text(code.format(name="other", word="worse") + "raise ValueError")
        await wait_until(lambda: "functions.py, the old one stays" in folder.log.text)
        assert await folder.word_of("functions.shared") == "old"
        for name in ("other", "shared"):
            file.write_text(code.format(name=name, word="new"))
            await folder.wait_for_word(f"functions.{name}", "new")


async def test_changed_functions_of_a_files_own_client_take_effect(folder: Folder) -> None:
    file = folder.path / "held.py"
    async with folder.watched():
        for name, word in (("a", "one"), ("a", "two"), ("b", "three")):
            file.write_text(CLIENT.format(name=name, word=word))
            await folder.wait_for_word(name, word)
    assert folder.lines()[1:] == ["Added a", "Reloaded a", "Removed a", "Added b"]


async def test_functions_with_an_id_of_another_module_are_not_loaded(folder: Folder) -> None:
    file = folder.path / "functions.py"
    code = FUNCTIONS.format(name="one", word="old")
    async with folder.watched():
        file.write_text(code)
        await folder.wait_for_word("kept", "old")
        file.write_text(code.replace("kept", "text.stats").replace("old", "new"))
        await wait_until(lambda: "Can't load functions.py, the old one stays" in folder.log.text)
        words = [await folder.word_of(name) for name in ("kept", "functions.one", "text.stats")]
    assert words == ["old", "old", "one"]


async def test_a_replaced_file_is_an_edit(folder: Folder) -> None:
    async with folder.watched():
        for word in ("two", "six"):
            path = folder.write("text/stats.py~", word)
            os.replace(path, folder.path / "text" / "stats.py")
            await folder.wait_for_word("text.stats", word)
    assert folder.lines()[1:] == ["Reloaded text.stats"] * 2


async def test_a_renamed_file_is_a_renamed_module(folder: Folder) -> None:
    async with folder.watched():
        os.rename(folder.path / "text" / "stats.py", folder.path / "text" / "numbers.py")
        await folder.wait_for_word("text.numbers", "one")
        await folder.wait_for_word("text.stats", None)
    assert folder.registry.list() == ["text.numbers"]


async def test_folders_are_added_and_removed(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "there.py").write_text(folder.source("moved"))
    async with folder.watched():
        (folder.path / "a" / "b").mkdir(parents=True)
        folder.write("a/b/deep.py", "deep")
        os.rename(tmp_path / "moved", folder.path / "moved")
        await folder.wait_for_word("a.b.deep", "deep")
        await folder.wait_for_word("moved.there", "moved")
        folder.write("a/b/deep.py", "deeper")
        folder.write("moved/there.py", "edited")
        await folder.wait_for_word("a.b.deep", "deeper")
        await folder.wait_for_word("moved.there", "edited")
        shutil.rmtree(folder.path / "a")
        os.rename(folder.path / "moved", tmp_path / "away")
        await folder.wait_for_word("a.b.deep", None)
        await folder.wait_for_word("moved.there", None)
    assert folder.registry.list() == ["text.stats"]


async def test_files_that_apcore_ignores_are_ignored(folder: Folder) -> None:
    async with folder.watched():
        for name in ("_private.py", ".hidden.py", "_private/inner.py", "notes.txt"):
            folder.write(name, "ignored")
        folder.write("new.py", "new")
        await folder.wait_for_word("new", "new")
    assert folder.registry.list() == ["new", "text.stats"]
    assert "import ignored" not in folder.notes()


def description_of(folder: Folder) -> tuple[Any, ...]:
    definition = folder.registry.get_definition("text.stats")
    assert definition is not None
    readonly = definition.annotations is not None and definition.annotations.readonly
    return (
        definition.name,
        definition.version,
        definition.tags,
        readonly,
        definition.metadata.get("owner"),
    )


async def test_a_modules_yaml_file_may_be_added_changed_and_removed(folder: Folder) -> None:
    meta = folder.path / "text" / "stats_meta.yaml"
    async with folder.watched():
        meta.write_text(META)
        await wait_until(
            lambda: description_of(folder) == ("Statistics", "2.0.0", ["yaml"], True, "us")
        )
        meta.write_text(META.replace("Statistics", "Numbers"))
        await wait_until(
            lambda: description_of(folder) == ("Numbers", "2.0.0", ["yaml"], True, "us")
        )
        meta.unlink()
        await wait_until(lambda: description_of(folder) == ("Says", "1.2.0", ["text"], False, None))
    assert folder.lines()[1:] == ["Reloaded text.stats"] * 3


@pytest.mark.parametrize(
    "meta",
    ["", META, "version: 2.0", "version: ''", "metadata: {display: {a2a: {alias: yaml}}}"],
    ids=["none", "all", "number", "empty", "display"],
)
async def test_a_reload_without_a_change_keeps_the_description(folder: Folder, meta: str) -> None:
    registry = Registry(extensions_dir=str(folder.path))
    (folder.path / "text" / "stats_meta.yaml").write_text(meta)
    registry.discover()
    before, module = registry.get_definition("text.stats"), registry.get("text.stats")
    reloader = Reloader(registry, folder.path)
    await reloader.update()
    (folder.path / "text" / "stats.py").touch()
    await reloader.update()
    assert registry.get("text.stats") is not module
    assert registry.get_definition("text.stats") == before


BROKEN = {
    "syntax": ("def broken(:", "SyntaxError"),
    "import": ("raise ValueError('two\\nlines')", r"ValueError: two\nlines"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "none": ("del SayModule", "ModuleLoadError"),
    "two": ("class Other(SayModule): pass", "ModuleLoadError"),
    "invalid": ("SayModule.description = ''", "TypeError: Missing or empty description"),
    "init": ("SayModule.__init__ = lambda self: next(iter(()))", "StopIteration"),
    "load": ("SayModule.on_load = lambda self: {}['key']", "KeyError: 'key'"),
    "async": (
        """
        async def on_load(self):
            note("never")
        SayModule.on_load = on_load
        """,
        "ModuleError",
    ),
    "stream": (
        """
        from apcore import ModuleAnnotations
        SayModule.annotations = ModuleAnnotations(streaming=True)
        """,
        "StreamingInterfaceError",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_file_leaves_the_old_module_in_service(folder: Folder, kind: str) -> None:
    more, reason = BROKEN[kind]
    async with folder.watched():
        folder.write("text/stats.py", "broken", more)
        await wait_until(lambda: folder.lines(logging.WARNING))
        assert await folder.word_of("text.stats") == "one"
        folder.write("text/stats.py", "whole")
        await folder.wait_for_word("text.stats", "whole")
    (line,) = folder.lines(logging.WARNING)
    assert line.startswith(f"Can't load text/stats.py, the old one stays: {reason}")
    assert "\n" not in line


async def test_a_broken_new_file_becomes_a_module_when_it_is_fixed(folder: Folder) -> None:
    async with folder.watched():
        folder.write("new.py", "broken", "1 / 0")
        await wait_until(lambda: folder.lines(logging.WARNING))
        assert folder.registry.list() == ["text.stats"]
        folder.write("new.py", "whole")
        await folder.wait_for_word("new", "whole")
        folder.write("other.py", "broken", "1 / 0")
        await wait_until(lambda: len(folder.lines(logging.WARNING)) == 2)
        (folder.path / "other.py").unlink()
        (folder.path / "new.py").unlink()
        await folder.wait_for_word("new", None)
    first = "Can't load new.py: ZeroDivisionError: division by zero"
    assert folder.lines(logging.WARNING)[0] == first
    assert folder.lines()[-1] == "Removed new"


async def test_broken_yaml_leaves_the_old_module_in_service(folder: Folder) -> None:
    async with folder.watched():
        (folder.path / "text" / "stats_meta.yaml").write_text("name: [")
        await wait_until(lambda: folder.lines(logging.WARNING))
        assert await folder.word_of("text.stats") == "one"
    (line,) = folder.lines(logging.WARNING)
    assert line.startswith("Can't load text/stats.py, the old one stays: ConfigError")
    assert "stats_meta.yaml" in line


class PickyValidator:
    """A validator that rejects the word "six"."""

    def validate(self, module: Any) -> list[str]:
        return ["it is a six"] if module.execute({}, None) == {"text": "six"} else []


async def test_a_module_rejected_by_the_registry_leaves_the_old_one_in_service(
    folder: Folder,
) -> None:
    folder.registry.set_validator(PickyValidator())
    async with folder.watched():
        folder.write("text/stats.py", "six")
        await wait_until(lambda: "unload six" in folder.notes())
        assert await folder.word_of("text.stats") == "one"
        folder.write("text/stats.py", "ten")
        await folder.wait_for_word("text.stats", "ten")
    (line,) = folder.lines(logging.WARNING)
    assert "text/stats.py, the old one stays: InvalidInputError" in line
    await wait_until(lambda: folder.notes().count("unload one"))
    assert folder.notes().count("load one") == folder.notes().count("unload one") == 1


async def test_each_module_is_loaded_and_unloaded_once(folder: Folder) -> None:
    async with folder.watched():
        folder.write("text/stats.py", "two")
        await folder.wait_for_word("text.stats", "two")
        folder.write("text/stats.py", "six", "1 / 0")
        await wait_until(lambda: folder.lines(logging.WARNING))
        (folder.path / "text" / "stats.py").unlink()
        await wait_until(lambda: "unload two" in folder.notes())
    assert folder.notes() == [
        *("import one", "init one", "load one"),
        *("import two", "init two", "load two", "unload one"),
        *("import six", "unload two"),
    ]


async def test_modules_are_loaded_and_unloaded_outside_the_event_loop(folder: Folder) -> None:
    folder.notes_file.unlink()  # drop the notes of the first discovery
    async with folder.watched():
        folder.write("text/stats.py", "two")
        folder.write("new.py", "new")
        await folder.wait_for_word("text.stats", "two")
        await folder.wait_for_word("new", "new")
        shutil.rmtree(folder.path / "text")
        (folder.path / "new.py").unlink()
        await wait_until(lambda: {"unload two", "unload new"} <= {*folder.notes()})
    threads = {line.rpartition(" ")[2] for line in folder.notes_file.read_text().splitlines()}
    assert len(folder.notes()) == 9
    assert str(threading.get_ident()) not in threads


async def test_hooks_set_on_an_instance_are_called(folder: Folder) -> None:
    own = """
        def __init__(self):
            self.on_load = lambda: note("own load")
            self.on_unload = lambda: note("own unload")
        SayModule.__init__ = __init__
    """
    async with folder.watched():
        folder.write("text/stats.py", "own", own)
        await wait_until(lambda: "unload one" in folder.notes())
        folder.registry.unregister("text.stats")
    assert folder.notes()[-3:] == ["own load own", "unload one", "own unload own"]


async def test_a_module_with_slots_is_reloaded(folder: Folder) -> None:
    slots = """
        class Slim:
            __slots__ = ()
            description = "Says a word."
            input_schema = output_schema = Text
            execute = SayModule.execute
        del SayModule
    """
    async with folder.watched():
        folder.write("text/stats.py", "two", slots)
        await folder.wait_for_word("text.stats", "two")
        folder.write("text/stats.py", "six", slots)
        await folder.wait_for_word("text.stats", "six")


async def test_a_module_that_fails_to_unload_is_replaced(folder: Folder) -> None:
    async with folder.watched():
        folder.write("text/stats.py", "two", "SayModule.on_unload = lambda self: 1 / 0")
        await folder.wait_for_word("text.stats", "two")
        folder.write("text/stats.py", "six")
        await folder.wait_for_word("text.stats", "six")
        await wait_until(lambda: folder.lines(logging.WARNING))
    (line,) = folder.lines(logging.WARNING)
    assert line == "Can't unload text.stats: ZeroDivisionError: division by zero"


async def test_modules_registered_by_the_program_are_not_replaced(folder: Folder) -> None:
    registry = folder.registry
    registry.register("own", always({"text": "own"}))
    registry.register("late", always({"text": "late"}))
    registry.unregister("text.stats")
    registry.register("text.stats", always({"text": "mine"}))
    async with folder.watched():
        folder.write("late.py", "file")
        folder.write("text/stats.py", "two")
        await wait_until(lambda: len(folder.lines(logging.WARNING)) == 2)
        shutil.rmtree(folder.path / "text")
        (folder.path / "late.py").unlink()
        await wait_until(lambda: len(folder.lines(logging.WARNING)) == 4)
        for skill_id, word in {"own": "own", "late": "late", "text.stats": "mine"}.items():
            assert await folder.word_of(skill_id) == word
    assert "import file" not in folder.notes()


async def test_a_module_removed_or_replaced_by_the_program_is_left_alone(folder: Folder) -> None:
    async with folder.watched():
        folder.registry.unregister("text.stats")
        folder.write("text/stats.py", "two")
        await wait_until(lambda: folder.lines(logging.WARNING))
        assert folder.registry.list() == []
        folder.registry.register("text.stats", always({"text": "mine"}))
        (folder.path / "text" / "stats.py").unlink()
        await wait_until(lambda: len(folder.lines(logging.WARNING)) == 2)
        assert await folder.word_of("text.stats") == "mine"


@pytest.mark.parametrize("word", [None, "mine"], ids=["removed", "replaced"])
async def test_a_module_changed_by_the_program_while_its_file_loads_is_left_alone(
    folder: Folder, word: str | None
) -> None:
    gate = folder.path.with_name("gate")
    wait = f"""
        import time

        note("wait")
        while not Path({str(gate)!r}).exists():
            time.sleep(0.01)
    """
    async with folder.watched():
        folder.write("text/stats.py", "two", wait)
        await wait_until(lambda: "wait two" in folder.notes())
        folder.registry.unregister("text.stats")
        if word is not None:
            folder.registry.register("text.stats", always({"text": word}))
        gate.touch()
        await wait_until(lambda: "unload two" in folder.notes())
        assert await folder.word_of("text.stats") == word
    (line,) = folder.lines(logging.WARNING)
    assert line.startswith("Not reloading text.stats: ")


async def test_a_module_is_never_missing_while_it_is_reloaded(folder: Folder) -> None:
    registry, reloader = folder.registry, Reloader(folder.registry, folder.path)
    await reloader.update()
    checks, threads = 0, set[int]()
    registry.on("unregister", lambda *_: threads.add(threading.get_ident()))

    async def check_registry() -> None:
        nonlocal checks
        while True:
            assert registry.get("text.stats") is not None
            assert registry.list() == ["text.stats"]
            checks += 1
            await asyncio.sleep(0)

    checker = asyncio.create_task(check_registry())
    for number in range(200):
        folder.write("text/stats.py", f"{number}")
        await reloader.update()
    assert not checker.done()
    checker.cancel()
    assert await folder.word_of("text.stats") == "199"
    assert checks > 1000
    assert threads == {threading.get_ident()}
    assert folder.lines()[1:] == ["Reloaded text.stats"] * 200


@pytest.mark.parametrize("replacement", [None, "a file"])
async def test_a_folder_that_disappears_and_returns_is_watched_again(
    folder: Folder, tmp_path: Path, replacement: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_server.modules.watch.RETRY_INTERVAL", 0.01)
    async with folder.watched():
        os.rename(folder.path, tmp_path / "away")
        if replacement:
            folder.path.write_text(replacement)
        await wait_until(lambda: folder.lines(logging.WARNING))
        await asyncio.sleep(0.1)  # several more scans, which are not logged
        assert await folder.word_of("text.stats") == "one"
        if replacement:
            folder.path.unlink()
        os.rename(tmp_path / "away", folder.path)
        for word in ("two", "six"):
            folder.write("text/stats.py", word)
            await folder.wait_for_word("text.stats", word)
    (line,) = folder.lines(logging.WARNING)
    assert str(folder.path) in line


async def test_a_folder_that_disappears_during_a_scan_removes_no_module(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloader = Reloader(folder.registry, folder.path)
    await reloader.update()

    def scan(path: Path) -> Any:
        modules = scan_extensions(path)
        os.rename(path, tmp_path / "away")
        return modules

    monkeypatch.setattr("apcore_a2a_server.modules.watch.scan_extensions", scan)
    with pytest.raises(FileNotFoundError):
        await reloader.update()
    assert await folder.word_of("text.stats") == "one"


async def test_a_folder_that_is_replaced_by_another_is_watched(
    folder: Folder, tmp_path: Path
) -> None:
    shutil.copytree(folder.path, tmp_path / "next")
    async with folder.watched():
        os.rename(folder.path, tmp_path / "last")
        os.rename(tmp_path / "next", folder.path)
        for word in ("two", "six"):
            folder.write("text/stats.py", word)
            await folder.wait_for_word("text.stats", word)
    assert not folder.lines(logging.WARNING)


async def test_the_watch_ends_when_it_is_cancelled(folder: Folder) -> None:
    before = asyncio.all_tasks()
    async with folder.watched():
        assert len(asyncio.all_tasks()) == len(before) + 2  # the watch, and its wait for a change
    assert asyncio.all_tasks() == before


async def test_an_agent_shows_and_runs_the_modules_of_its_folder(folder: Folder) -> None:
    async with serving(folder.executor) as peer, folder.watched():
        assert (await peer.send("text.stats")).data == {"text": "one"}
        folder.write("text/stats.py", "two", "SayModule.description = 'Says another word.'")
        folder.write("new.py", "new")
        await wait_until(lambda: "Added new" in folder.lines())
        await folder.wait_for_word("text.stats", "two")
        assert (await peer.send("text.stats")).data == {"text": "two"}
        assert (await peer.send("new")).data == {"text": "new"}
        card = (await peer.client.get("/.well-known/agent-card.json")).json()
    skills = {skill["id"]: skill["description"] for skill in card["skills"]}
    assert skills == {"new": "Says a word.", "text.stats": "Says another word."}


class WatchedAgent:
    """A client of an agent whose folder is watched."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def card(self, etag: str = "") -> httpx.Response:
        headers = {"if-none-match": etag}
        return await self.peer.client.get("/.well-known/agent-card.json", headers=headers)

    async def wait_for_code(self, skill: str, code: int | None) -> None:
        """Poll *skill* until its response has this error code, or none."""
        while (await self.peer.send(skill, self.peer.part(data={}))).code != code:  # noqa: ASYNC110  # as in `wait_until`
            await asyncio.sleep(0.02)


async def test_a_watching_agent_shows_and_runs_the_current_modules(folder: Folder) -> None:
    """The card's ETag and revision change with the modules (FR-OPS-003)."""
    folder.write("first.py", "one")
    async with serving(folder.path, watch=True) as peer:
        await folder.wait_for_first_scan()
        agent = WatchedAgent(peer)
        before = await agent.card()
        folder.write("second.py", "two")
        await agent.wait_for_code("second", None)
        after = await agent.card(before.headers["etag"])
        assert after.status_code == 200
        assert [skill["id"] for skill in after.json()["skills"]] == [
            "first",
            "second",
            "text.stats",
        ]
        for page in (before, after):
            params = page.json()["capabilities"]["extensions"][0]["params"]
            assert page.headers["etag"] == f'"{params["revision"]}"'
        (folder.path / "second.py").unlink()
        await agent.wait_for_code("second", -32601)
        assert (await agent.card(before.headers["etag"])).status_code == 304


async def test_a_running_task_of_a_replaced_module_ends_with_the_old_code(folder: Folder) -> None:
    slow = """
        import asyncio

        async def wait(self, inputs, context):
            while not GATE.exists():
                await asyncio.sleep(0.01)
            return {"text": WORD}

        SayModule.execute = wait
    """
    gate = folder.path.with_name("gate")
    folder.write(
        "work.py", "old", f"from pathlib import Path\nGATE = Path({str(gate)!r})\n{dedent(slow)}"
    )
    async with serving(folder.path, watch=True) as peer:
        await folder.wait_for_first_scan()
        task_id = await peer.start("work", peer.part(data={}))
        folder.write("work.py", "new")
        await wait_until(lambda: "Reloaded work" in folder.lines())
        assert contents((await peer.send("work", peer.part(data={}))).task) == [{"text": "new"}]
        gate.touch()
        assert contents(await peer.until(task_id, "completed")) == [{"text": "old"}]


def test_only_a_folder_can_be_watched() -> None:
    with pytest.raises(ValueError, match="watch needs a folder of modules as the only source"):
        app_of(registry_of({"work": always({})}), watch=True)
