"""Local modules and skills of remote agents as tools of language models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from apcore import Executor
from apcore_a2a_core import Executor as ExecutorProtocol
from apcore_a2a_core import missing_methods
from apcore_a2a_core.schema import SchemaConverter, keys_of_pointer, properties_of
from apcore_a2a_core.values import is_array, is_object, object_at, object_of

from .skills import RemoteSkill

Json = dict[str, Any]
MAX_NAME = 64
"""Maximum length of a tool's name that all language models accept, in characters."""
MAX_DESCRIPTION = 1024
"""Maximum length of a description that all language models accept, in characters."""
HINTS = {
    "readonly": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Annotations of apcore, and their names in MCP."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A module as a tool.

    Attributes:
        name: The name that a language model calls it by.
        module_id: The id of the module.
        description: Its description, for the model.
        schema: JSON Schema of its arguments.
        original: In strict mode, the module's own schema, which does not require all members; None
            otherwise.
        descriptor: apcore's description of the module.
    """

    name: str
    module_id: str
    description: str
    schema: Json
    original: Json | None
    descriptor: Any


class Tools:
    """Modules as tools; see `tools`.

    Attributes:
        definitions: The tools, as the API of a language model takes them.
    """

    def __init__(self, executor: Any, members: Iterable[Tool], style: str) -> None:
        self._executor = executor
        self._by_name = {tool.name: tool for tool in members}
        self._style = style
        self.definitions: list[Json] = [self._definition(t) for t in self._by_name.values()]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Tool:
        """Return the tool with this name.

        Raises:
            KeyError: There is no such tool; language models invent names.
        """
        return self._by_name[name]

    async def call(self, name: str, arguments: Mapping[str, Any], context: Any = None) -> Any:
        """Call the module of a tool, and return its output.

        Args:
            name: The name of the tool.
            arguments: The arguments that the model has chosen.
            context: The apcore Context of the call, with the caller's identity.

        Raises:
            KeyError: There is no such tool; language models invent names.
            ModuleError: The call is refused, or fails.
        """
        tool = self._by_name[name]
        inputs = dict(arguments)
        if tool.original is not None:
            inputs = _without_nulls(inputs, [tool.original], tool.original)
        return await self._executor.call_async(tool.module_id, inputs, context)

    def _definition(self, tool: Tool) -> Json:
        common = {"name": tool.name, "description": tool.description}
        if self._style == "openai":
            strict = {} if tool.original is None else {"strict": True}
            function = {**common, "parameters": tool.schema, **strict}
            return {"type": "function", "function": function}
        if self._style == "anthropic":
            return {**common, "input_schema": tool.schema}
        annotations = getattr(tool.descriptor, "annotations", None)
        hints = {hint: bool(getattr(annotations, flag, False)) for flag, hint in HINTS.items()}
        return {**common, "inputSchema": tool.schema, "annotations": hints}


def tools(
    source: Any,
    style: Literal["openai", "anthropic", "mcp"] = "openai",
    only: Callable[[str], bool] | Iterable[str] | None = None,
    *,
    strict: bool = False,
) -> Tools:
    """Return local modules and remote skills as tools of a language model.

    Args:
        source: An apcore Executor, whose access rules and approval apply to the calls; or a
            Registry.
        style: The API that the definitions are for.
        only: The ids of the modules, or a function that selects them; by default all. Unless ids
            are given, remote skills are included even if they are not exposed, and modules of
            `system.*` are left out.
        strict: Whether the schemas require all arguments and allow no undeclared ones, as OpenAI's
            strict mode demands; the model passes null to omit an optional argument.

    Raises:
        ValueError: There is no such style, or `only` names a module that does not exist.

    Example:
        ```python
        import asyncio

        from apcore import Registry
        from apcore_a2a_remote import tools


        class Add:
            description = "Adds numbers."
            input_schema = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
            output_schema = None

            def execute(self, inputs, context):
                return {"sum": inputs["a"] + inputs["b"]}


        registry = Registry()
        registry.register("math.add", Add())
        offered = tools(registry, style="anthropic")
        print(offered.definitions[0]["name"])
        #> math__add
        print(asyncio.run(offered.call("math__add", {"a": 2, "b": 3})))
        #> {'sum': 5}
        ```
    """
    if style not in ("openai", "anthropic", "mcp"):
        raise ValueError(f"style must be openai, anthropic or mcp, not {style!r}")
    executor = source if not missing_methods(source, ExecutorProtocol) else Executor(source)
    registry: Any = executor.registry
    names: dict[str, str] = {}
    members: list[Tool] = []
    for module_id in _choose_ids(registry, only):
        descriptor = registry.get_definition(module_id)
        if descriptor is None:
            raise ValueError(f"there is no module {module_id!r}, which `only` names")
        name = tool_name(module_id, names)
        names[name] = module_id
        original = argument_schema(descriptor)
        schema = _tighten(original, strict=strict)
        description = str(getattr(descriptor, "description", ""))[:MAX_DESCRIPTION]
        original_if_strict = original if strict else None
        members.append(Tool(name, module_id, description, schema, original_if_strict, descriptor))
    return Tools(executor, members, style)


def tool_name(module_id: str, taken: Mapping[str, str]) -> str:
    """Return a name, not taken yet, for the tool of a module.

    >>> tool_name("remote.weather.today", {})
    'remote__weather__today'
    >>> tool_name("a.b", {"a__b": "a__b"})
    'a__b_2'
    """
    base = re.sub(r"[^a-zA-Z0-9_-]", "__", module_id)
    name, number = base[:MAX_NAME], 1
    while name in taken:
        number += 1
        end = f"_{number}"
        name = f"{base[: MAX_NAME - len(end)]}{end}"
    return name


def argument_schema(descriptor: Any) -> Json:
    """Return the schema of a module's inputs, with references inlined if possible."""
    try:
        return SchemaConverter().convert_input_schema(descriptor)
    except ValueError:  # for example, a recursive schema: keep references, which some models follow
        return {"type": "object", **object_of(descriptor, "input_schema")}


def _tighten(schema: Any, *, strict: bool) -> Any:
    """Return a schema without `additionalProperties: true`, which some models refuse.

    With *strict*, all members are required, and null is allowed where a member was optional.
    """
    if is_array(schema):
        return [_tighten(item, strict=strict) for item in schema]
    if not is_object(schema):
        return schema
    tight = {name: _tighten(item, strict=strict) for name, item in schema.items()}
    if tight.get("additionalProperties") is True:
        del tight["additionalProperties"]
    if strict and tight.get("type") == "object":
        properties = properties_of(tight)
        required = tight.get("required", ())
        tight["properties"] = {
            name: member if name in required else {"anyOf": [member, {"type": "null"}]}
            for name, member in properties.items()
        }
        tight |= {"required": [*properties], "additionalProperties": False}
    return tight


def _without_nulls(value: Any, schemas: Iterable[Any], root: Json) -> Any:
    """Return arguments without the nulls by which a model omits optional members.

    Args:
        value: The arguments, or a value in them.
        schemas: The schemas of *value* before they were made strict.
        root: The schema of the arguments, to which references in the schemas refer.
    """
    if is_array(value):
        known = _alternatives(schemas, root)
        items = [schema["items"] for schema in known if "items" in schema]
        prefixes = [prefix for schema in known if is_array(prefix := schema.get("prefixItems"))]
        return [
            _without_nulls(item, [*(p[i] for p in prefixes if i < len(p)), *items], root)
            for i, item in enumerate(value)
        ]
    if not is_object(value):
        return value
    members: dict[str, list[Any]] = {}
    required: set[str] = set()
    for schema in _alternatives(schemas, root):
        required.update(schema.get("required", ()))
        for name, member in properties_of(schema).items():
            members.setdefault(name, []).append(member)
    return {
        name: _without_nulls(item, members.get(name, ()), root)
        for name, item in value.items()
        if item is not None or name in required or name not in members
    }


def _alternatives(schemas: Iterable[Any], root: Json) -> list[Json]:
    """Return schemas, and those that they combine or refer to."""
    found: list[Json] = [schema for schema in schemas if is_object(schema)]
    for schema in found:  # grows during the loop
        combined = [schema.get(key, ()) for key in ("anyOf", "oneOf", "allOf")]
        related = [choice for choices in combined for choice in choices]
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            related.append(object_at(root, *keys_of_pointer(ref)))
        for other in related:
            if is_object(other) and other not in found:
                found.append(other)
    return found


def _choose_ids(registry: Any, only: Callable[[str], bool] | Iterable[str] | None) -> list[str]:
    ids = [*registry.list()]
    if not callable(only) and only is not None:
        return [*only]
    iterate: Any = getattr(registry, "iter", None)
    if iterate is not None:
        modules = iterate(include_hidden=True)
        ids += [name for name, m in modules if isinstance(m, RemoteSkill) and name not in ids]
    chosen_ids = [name for name in sorted(ids) if not name.startswith("system.")]
    return [name for name in chosen_ids if only(name)] if callable(only) else chosen_ids


def as_langchain_tool(offered: Tools, name: str, context: Any = None) -> Any:
    """Return a tool as a `StructuredTool` of LangChain, which must be installed.

    Args:
        offered: The tools.
        name: The name of the tool.
        context: The apcore Context of its calls, with the caller's identity.

    Raises:
        KeyError: There is no such tool.
        ImportError: `langchain-core` is not installed.
    """
    tool = offered[name]

    async def call(**arguments: Any) -> Any:
        return await offered.call(name, arguments, context)

    structured: Any = import_module("langchain_core.tools").StructuredTool
    return structured.from_function(
        coroutine=call, name=name, description=tool.description, args_schema=tool.schema
    )


def as_adk_tool(offered: Tools, name: str, context: Any = None) -> Any:
    """Return a tool as a `BaseTool` of Google's ADK, which must be installed.

    Args:
        offered: The tools.
        name: The name of the tool.
        context: The apcore Context of its calls, with the caller's identity.

    Raises:
        KeyError: There is no such tool.
        ImportError: `google-adk` is not installed.
    """
    tool = offered[name]
    declaration = import_module("google.genai.types").FunctionDeclaration(
        name=name, description=tool.description, parameters_json_schema=tool.schema
    )
    base: Any = import_module("google.adk.tools").BaseTool

    class ModuleTool(base):  # type: ignore[misc]  # ADK is imported only here
        def _get_declaration(self) -> Any:
            return declaration

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            return await offered.call(name, args, context)

    return ModuleTool(name=name, description=tool.description)
