"""Targets: the folders, files, Python modules and objects that can be served."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apcore import APCore, Executor, Registry
from apcore.decorator import module
from apcore_a2a_server.modules.importing import TargetError
from apcore_a2a_server.modules.loading import NoModulesError
from apcore_a2a_server.modules.source import executor_of

from .modules import Echo
from .test_serve import agent_with, card_of

FUNCTIONS = """
    from __future__ import annotations
    from dataclasses import dataclass
    from apcore.decorator import module
    from pydantic import BaseModel

    @dataclass
    class Unrelated:
        numbers: list[int]

    class Greeting(BaseModel):
        text: str

    @module
    def hello(name: str) -> Greeting:
        '''Greet a person.'''
        return Greeting(text=f"Hello {name}")

    @module(id="math.add")
    async def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b
"""
MODULE_CLASS = """
    from pydantic import BaseModel

    class Text(BaseModel):
        text: str

    class Echo:
        description = "Repeats its text"
        input_schema = output_schema = Text
        loads = 0

        def on_load(self):
            type(self).loads += 1

        def execute(self, inputs, context):
            return {"text": inputs["text"], "loads": self.loads}
"""
CLIENT = """
    from apcore import APCore
    from apcore.decorator import module

    client = same = APCore()
    registry = client.registry

    @client.module(id="held.twice")
    def twice(number: int) -> int:
        '''Double a number.'''
        return 2 * number

    @module
    def free(number: int) -> int:
        '''Return a number.'''
        return number

    tools = [free]
    number = 5
"""
TWO_CLIENTS = """
    from apcore import APCore

    a, b = APCore(), APCore()
    for client in (a, b):
        @client.module(id="one")
        def one() -> int:
            '''One.'''
            return 1
    del client
"""
BINDINGS = """
    spec_version: "1.0"
    bindings:
      - module_id: bound.shout
        target: "plain_functions:shout"
        description: Shouts
        auto_schema: true
"""
PLAIN = """
    def shout(text: str) -> str:
        '''Shout.'''
        return text.upper()
"""

Write = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import from the test's folder, and remove the imported modules afterwards."""
    before = {*sys.modules}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in {*sys.modules} - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def skills_of(target: Any) -> set[str]:
    executor, _ = executor_of(target)
    return {*executor.registry.list()}


def test_functions_in_a_file_are_skills_that_run(write: Write) -> None:
    path = write("greet.py", FUNCTIONS)
    with agent_with(path) as agent:
        assert {skill["id"] for skill in card_of(agent)["skills"]} == {"greet.hello", "math.add"}
        params = agent.params("greet.hello", agent.part(data={"name": "Ada"}))
        task = agent.ask("send", params).result["task"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"text": "Hello Ada"}


def test_the_first_example_of_the_readme_works(write: Write) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    example = readme.partition("# greet.py\n")[2].partition("```")[0]

    with agent_with(write("greet.py", example)) as agent:
        task = agent.ask("send", agent.params("greet.hello", agent.part(data={"name": "Ada"})))
        (artifact,) = task.result["task"]["artifacts"]
        assert artifact["parts"][0]["text"] == "Hello, Ada!"


def test_a_folder_may_mix_classes_functions_clients_and_bindings(write: Write) -> None:
    write("all/greet.py", FUNCTIONS)
    write("all/text/echo.py", MODULE_CLASS)
    write("all/held.py", CLIENT)
    write("all/work.binding.yaml", BINDINGS)
    write("all/_helper.py", "raise SystemError")
    write("plain_functions.py", PLAIN)

    expected = {"greet.hello", "math.add", "text.echo", "held.twice", "bound.shout"}
    assert skills_of("all") == expected


def test_a_file_in_a_folder_is_imported_once(write: Write) -> None:
    write("count.py", "imports = 0")
    write("tools/greet.py", FUNCTIONS + "\n    import count\n    count.imports += 1")

    assert skills_of("tools") == {"greet.hello", "math.add"}
    assert sys.modules["count"].imports == 1


@pytest.mark.parametrize(
    ("target", "skills"),
    [
        ("pack.held", {"held.twice"}),
        ("pack.held:client", {"held.twice"}),
        ("pack.held:client.registry", {"held.twice"}),
        ("pack/held.py:client", {"held.twice"}),
        ("pack/held.py", {"held.twice"}),
        ("pack.held:tools", {"pack.held.free"}),
        ("pack.held:free", {"pack.held.free"}),
        ("pack.greet", {"pack.greet.hello", "math.add"}),
        ("pack.text", {"pack.text.echo"}),
        ("pack/text.py", {"text"}),
        ("work.binding.yaml", {"bound.shout"}),
        (["pack.held", "work.binding.yaml"], {"held.twice", "bound.shout"}),
    ],
)
def test_a_target_determines_its_skill_ids(target: Any, skills: set[str], write: Write) -> None:
    write("pack/__init__.py", "")
    write("pack/held.py", CLIENT)
    write("pack/greet.py", FUNCTIONS)
    write("pack/text.py", MODULE_CLASS)
    write("work.binding.yaml", BINDINGS)
    write("plain_functions.py", PLAIN)

    assert skills_of(target) == skills


def test_only_the_classes_defined_in_a_target_are_created_and_only_once(write: Write) -> None:
    counting = "\n        created = 0\n        def __init__(self):\n            Echo.created += 1"
    write("base.py", MODULE_CLASS + counting)
    write("greet.py", FUNCTIONS + "\n    from base import Echo")

    assert skills_of("greet.py") == {"greet.hello", "math.add"}
    assert sys.modules["base"].Echo.created == 0
    sys.modules["base"].Echo.module_id = "echo"
    assert skills_of("base:Echo") == {"echo"}
    assert sys.modules["base"].Echo.created == 1


def test_modules_can_be_given_as_objects() -> None:
    def more(number: int) -> int:
        """Add one."""
        return number + 1

    class Named(Echo):
        module_id = "named"

    assert skills_of([module(more, id="one.more"), Named]) == {"one.more", "named"}
    assert skills_of(module(more, id="one.more")) == {"one.more"}
    with pytest.raises(TargetError, match="The module Echo has no id"):
        skills_of([Echo()])


def test_modules_of_several_targets_keep_their_metadata_and_load_once(write: Write) -> None:
    write("one/greet.py", FUNCTIONS)
    write("two/echo.py", MODULE_CLASS)
    write("two/echo_meta.yaml", "tags: [loud]\nannotations: {readonly: true}")

    with agent_with(["one", "two"]) as agent:
        skill = next(skill for skill in card_of(agent)["skills"] if skill["id"] == "echo")
        assert {"loud", "readonly"} <= {*skill["tags"]}
        task = agent.ask("send", agent.params("echo", agent.part(data={"text": "a"}))).result
        assert task["task"]["artifacts"][0]["parts"][0]["data"] == {"text": "a", "loads": 1}


def test_an_executor_target_gets_the_modules_of_the_other_targets(write: Write) -> None:
    write("greet.py", FUNCTIONS)
    executor = Executor(Registry())

    served_executor, is_own = executor_of([executor, "greet.py"])

    assert (served_executor, is_own) == (executor, False)
    assert {*executor.registry.list()} == {"greet.hello", "math.add"}
    with pytest.raises(TargetError, match="Only one target can be an Executor or APCore"):
        executor_of([executor, APCore()])


def test_a_class_and_its_instance_are_one_module(write: Write) -> None:
    write("text.py", MODULE_CLASS + "\n    Same = Echo\n    echo = Echo()")
    assert skills_of("text") == {"text.echo"}


def test_a_client_without_modules_does_not_hide_a_registry_with_some(write: Write) -> None:
    write(
        "held.py",
        """
        from apcore import APCore, Registry
        from apcore.decorator import module

        client, registry = APCore(), Registry()

        def twice(number: int) -> int:
            '''Double a number.'''
            return 2 * number

        registry.register("held.twice", module(twice, id="held.twice"))
        """,
    )
    assert skills_of("held.py") == {"held.twice"}


def test_a_file_that_exits_is_not_imported(write: Write) -> None:
    write("exits.py", FUNCTIONS + "\n    raise SystemExit(3)")

    with pytest.raises(SystemExit):
        executor_of("exits.py")
    assert "exits" not in sys.modules


@pytest.mark.parametrize("is_own", [False, True])
def test_modules_of_a_registry_in_a_mapping_are_not_closed(is_own: bool) -> None:
    closed: list[str] = []

    class Closable(Echo):
        module_id = "one"

        async def close(self) -> None:
            closed.append("greet")

    registry = Registry()
    registry.register("one", Closable())
    with agent_with([{"greet": Closable if is_own else registry}]) as agent:
        assert [skill["id"] for skill in card_of(agent)["skills"]] == ["greet"]
    assert closed == (["greet"] if is_own else [])


def test_two_targets_with_the_same_skill_are_refused(write: Write) -> None:
    write("one/greet.py", FUNCTIONS)
    write("two/greet.py", FUNCTIONS)
    with pytest.raises(TargetError, match=r"^greet\.hello can't be served: .*already registered"):
        executor_of(["one", "two"])


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nope", "There is no file, folder or Python module nope\nA target is a folder,"),
        ("nope.py", "There is no file or folder nope.py\n"),
        ("no/such", "There is no file or folder no/such\n"),
        ("./skills:greet", r"\./skills is a folder, but a file is expected before the colon\n"),
        (Path("no/such"), "The folder of modules no/such does not exist"),
        ("held.nope", "There is no file, folder or Python module held.nope"),
        ("two words", "There is no file, folder or Python module two words"),
        ("held:clint", r"held has no attribute clint \(did you mean client\?\)"),
        ("held:number", "held:number is of type int, which has no modules\nA target"),
        ("notes.txt", "notes.txt is neither Python nor YAML"),
        ("broken.binding.yaml", "broken.binding.yaml can't be loaded: .*Missing 'bindings' key"),
        ("several.py", "several.py has several sources .* choose several.py:a or several.py:b"),
        ("twice.py", "twice.py has two modules with the id math.add"),
        ("raises.py", r"raises.py can't be imported: KeyError \(line 3\)"),
        ("imports.py", "imports.py could not be loaded: ModuleNotFoundError: .*no_such_thing"),
        ("imports", r"imports can't be imported: ModuleNotFoundError: No module .*no_such_thing"),
        ("uncalled.py", r"write @module\(\), with parentheses"),
        ("untyped.py", "Parameter 'name' in function 'hello' has no type annotation"),
        ("plain.py", "its function shout is not decorated with @module\nA module is a function"),
        ("partial.py", "class Echo lacks output_schema\n"),
        ("wrong.py", "input_schema and output_schema of class Echo must be pydantic models"),
        ("empty.py", "empty.py could not be loaded: No Module subclass found in file\nA module"),
        ("needs.py", r"Echo can't be created: TypeError; its __init__ must work without arg"),
        ("needs", r"Echo can't be created: TypeError; its __init__ must work without arg"),
        ("needs:Echo", r"Echo can't be created: TypeError; its __init__ must work without arg"),
        ("~no-such-user/skills", "There is no file or folder ~no-such-user/skills\n"),
        ("x" * 5000, "There is no file, folder or Python module x+\n"),
        ({"x": 5}, "A target of the type int has no modules"),
        ([Registry(), 5], "A target of the type int has no modules"),
    ],
)
def test_a_wrong_target_is_refused_with_the_reason(target: Any, problem: str, write: Write) -> None:
    write("skills/greet.py", FUNCTIONS)
    write("held.py", CLIENT)
    write("notes.txt", "")
    write("broken.binding.yaml", "spec_version: '1.0'")
    write("several.py", TWO_CLIENTS)
    write("twice.py", FUNCTIONS + "\n    @module(id='math.add')\n    def plus() -> int: return 5")
    write("raises.py", "\nfrom apcore.decorator import module\n{}['secret']\nmodule(print)")
    write("imports.py", "import no_such_thing")
    write("uncalled.py", FUNCTIONS.replace("apcore.decorator", "apcore").split("@module(")[0])
    write("untyped.py", FUNCTIONS.replace("name: str", "name"))
    write("plain.py", PLAIN)
    write("partial.py", MODULE_CLASS.replace("output_schema = ", ""))
    write("wrong.py", MODULE_CLASS.replace("schema = Text", "schema = dict"))
    write("empty.py", "")
    write("needs.py", MODULE_CLASS + "\n        def __init__(self, url):\n            pass")

    with pytest.raises((TargetError, NoModulesError), match=f"(?s){problem}"):
        executor_of(target)


def test_a_file_that_fails_to_load_does_not_affect_other_files_of_its_folder(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write("tools/greet.py", FUNCTIONS)
    write("tools/untyped.py", FUNCTIONS.replace("name: str", "name").replace("math", "other"))

    assert skills_of("tools") == {"greet.hello", "math.add"}
    (record,) = caplog.records
    assert record.getMessage().startswith("Can't load untyped.py: ")
    assert "Parameter 'name' in function 'hello'" in record.getMessage()


def test_annotations_of_functions_reach_the_card() -> None:
    def wipe(path: str) -> None:
        """Remove a file."""

    with agent_with([module(wipe, id="wipe", annotations={"destructive": True})]) as agent:
        (skill,) = card_of(agent)["skills"]
        assert "destructive" in skill["tags"]
