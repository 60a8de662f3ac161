"""Further modules for the tests, with behaviour that the examples lack."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

from apcore import Context, Executor, ModuleAnnotations, Registry

EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"


class SchemalessModule:
    """A module without schemas."""

    input_schema = None
    output_schema = None


class Echo(SchemalessModule):
    description = "Returns its inputs"

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        return inputs


class FailingModule(SchemalessModule):
    description = "Raises"

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        raise RuntimeError("an internal secret")


class FileModule(SchemalessModule):
    description = "Returns a file and its size"

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        content = inputs["text"].encode()
        return {"note.txt": content, "size": len(content)}


class Gates:
    """Named gates; each is shut until the skill `test.open` opens it."""

    def __init__(self) -> None:
        self.events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


class WaitModule(SchemalessModule):
    """A job that lasts until its gate is opened."""

    description = "Streams one report, then waits until a gate is open"
    annotations = ModuleAnnotations(streaming=True)

    def __init__(self, gates: Gates) -> None:
        self.events = gates.events

    async def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        await self.events[inputs["gate"]].wait()
        return {"opened": inputs["gate"]}

    async def stream(self, inputs: dict[str, Any], context: "Context[Any]") -> Any:
        yield {"waiting": True}
        yield await self.execute(inputs, context)


class OpenModule(SchemalessModule):
    description = "Opens a gate"

    def __init__(self, gates: Gates) -> None:
        self.events = gates.events

    async def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        self.events[inputs["gate"]].set()
        return {}


def executor(gates: Gates | None = None) -> Executor:
    """Return an executor with the examples and the modules of this file."""
    registry = Registry(extensions_dir=str(EXAMPLES))
    registry.discover()
    gates = gates or Gates()
    test_modules = {
        "echo": Echo(),
        "fail": FailingModule(),
        "pack": FileModule(),
        "wait": WaitModule(gates),
        "open": OpenModule(gates),
    }
    for name, module in test_modules.items():
        registry.register(f"test.{name}", module)
    return Executor(registry)
