"""The skills on a card as apcore modules."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from apcore import Context, ModuleAnnotations, ModuleExample
from apcore_a2a_client import AgentCard, AgentSkill
from apcore_a2a_core import EXTENSION_URI, Prompt, clean
from apcore_a2a_core.schema import types_of
from apcore_a2a_core.values import is_array, is_object, object_at, size_of

from .calls import Call, Pending
from .connection import Connection
from .content import TEXT, Json, allow_file_objects

logger = logging.getLogger("apcore_a2a_remote")

PREFIX = "remote."
"""Prefix of the ids of the modules."""
MAX_SKILLS = 1000
"""Maximum number of skills of one agent that become modules."""
MAX_DETAILS = 256 * 1024
"""Maximum size of a skill's details, in bytes; a skill with larger details is left out."""
MAX_DESCRIPTION = 10_000
VIA = "apcore_a2a_via"
"""The annotation with the digests of a skill's own agent, and of the agents that relayed it."""
MAX_VIA = 4
"""A skill whose annotation VIA lists this many agents is left out."""
MAX_ID = 192
"""Maximum length of an id in apcore, in characters."""
TEXT_AND_FILES: Json = {"a2a": {"text_field": TEXT, "files": True}}
"""`display` of skills that are not typed: they take text and files, and return text."""
WHOLE_AGENT = "agent"
"""The last part of the id of the module for an agent whose card lists no skills."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill on a card, with its details from the extension of this project.

    Attributes:
        skill: The skill.
        details: Its schemas, annotations and examples; empty without the extension.
        streams: Whether the agent supports streams.
    """

    skill: AgentSkill
    details: Mapping[str, Any]
    streams: bool


class RemoteSkill:
    """A skill of a remote agent as an apcore module.

    Args:
        agent: The agent.
        module_id: The id of the module.
        entry: The skill.

    Attributes:
        module_id: The id of the module.
        remote_id: The id of the skill at the agent; empty if its card lists no skills.
        is_typed: Whether the agent publishes an input schema for an object; otherwise the skill
            takes and returns text.
        is_gated: Whether this program asks for approval before it calls the agent.
        published_output_schema: The output schema that the agent publishes; `output_schema`
            also allows `File` objects for files.
    """

    is_remote = True
    """Servers of this project show calls of such modules as remote in the trace of a task."""

    def __init__(self, agent: Connection, module_id: str, entry: Entry) -> None:
        skill, details = entry.skill, entry.details
        self._agent = agent
        self.module_id = module_id
        self.remote_id = skill.id
        name = clean(skill.name or skill.id, 200)
        self.description = skill.description.strip()[:MAX_DESCRIPTION] or name
        self.documentation = _text(details.get("documentation"))
        self.tags = [clean(tag, 100) for tag in skill.tags[:20]]
        input_schema: Any = details.get("inputSchema")
        output_schema = details.get("outputSchema")
        self.is_typed = is_object(input_schema) and types_of(input_schema) <= {"object"}
        self.text_field = _text(details.get("textField")) if self.is_typed else TEXT
        self.input_schema: Any = dict(input_schema) if self.is_typed else Prompt
        published = output_schema if self.is_typed and is_object(output_schema) else None
        self.published_output_schema: Json | None = published
        self.output_schema: Any = None if published is None else allow_file_objects(published)
        self.display: Json = TEXT_AND_FILES if not self.is_typed else self._display()
        self.annotations = self._annotations(details.get("annotations"), via_of(details))
        self.examples = [*_examples(details.get("examples"))]
        if agent.timeout is not None:
            self.resources = {"timeout": int(agent.timeout * 1000)}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.module_id}>"

    @property
    def is_gated(self) -> bool:
        """Whether this program asks for approval before it calls the agent."""
        return self.annotations.requires_approval

    async def execute(self, inputs: Json, context: Context[Any]) -> Json:
        """Call the skill, and return its output."""
        return await self._call(inputs, context).output()

    def _call(self, inputs: Json, context: Context[Any]) -> Call:
        self._agent.check_exposed(self.module_id, context)
        return Call(self._agent, self, inputs, context)

    async def on_abandoned(self, inputs: Json, context: Context[Any]) -> None:
        """Cancel the agent's task that waits for an answer, since there will be none."""
        pending = Pending.read(context.services.state)
        if pending is not None and pending.remote == self._agent.name:
            await self._agent.cancel(pending.task, self._agent.headers_for(context))

    def _display(self) -> Json:
        return {"a2a": {"text_field": self.text_field}} if self.text_field else {}

    def _annotations(self, declared: Any, via: list[Any]) -> ModuleAnnotations:
        flags: Mapping[str, Any] = declared if is_object(declared) else {}
        # with `approve="remote"`, only the agent asks for approval: callers are not asked twice
        is_gated = self._agent.approve == "local" and flags.get("requires_approval") is True
        return ModuleAnnotations(
            readonly=flags.get("readonly") is True,
            destructive=flags.get("destructive") is True,
            idempotent=flags.get("idempotent") is True,
            requires_approval=is_gated,
            open_world=True,
            discoverable=self._agent.expose,
            extra={VIA: [url_digest(self._agent.url), *via]} if self._agent.expose else {},
        )


class StreamingRemoteSkill(RemoteSkill):
    """A skill of an agent that supports streams."""

    async def stream(self, inputs: Json, context: Context[Any]) -> AsyncIterator[Json]:
        """Call the skill, and yield the chunks of its output as they arrive."""
        async with aclosing(self._call(inputs, context).chunks()) as chunks:
            async for chunk in chunks:
                yield chunk


def entries_of(card: AgentCard, name: str, url: str) -> dict[str, Entry]:
    """Return the skills on a card by the ids that their modules get.

    A skill is left out if its annotation VIA already lists this agent, or MAX_VIA agents: two
    agents that expose each other's skills would otherwise add more skills at each refresh.

    Args:
        card: The card.
        name: The name of the agent in the ids of its modules.
        url: The URL of the agent.
    """
    details = details_of_skills(card)
    entries: dict[str, Entry] = {}
    for skill in card.skills[:MAX_SKILLS] or whole_agent(card):
        skill_details = object_at(details, skill.id) or {}
        via = via_of(skill_details)
        if url_digest(url) in via or len(via) >= MAX_VIA:
            continue
        if size_of(skill_details) > MAX_DETAILS:
            extra = {"event": "remote_skill_skipped"}
            logger.warning("Skipping a skill of %s: its details are too large", name, extra=extra)
            continue
        id_end = skill.id.removeprefix(PREFIX) if via else skill.id or WHOLE_AGENT
        module_id = free_id(f"{PREFIX}{name}.{id_end}", entries)
        entries[module_id] = Entry(skill, skill_details, card.capabilities.streaming)
    return entries


def whole_agent(card: AgentCard) -> list[AgentSkill]:
    """Return the agent as one skill without an id, for a card that lists no skills.

    Some frameworks list no skills, but take messages. Agents of this project list all skills that
    the caller may call, so the result for them is empty.
    """
    if any(extension.uri == EXTENSION_URI for extension in card.capabilities.extensions):
        return []
    return [AgentSkill("", card.name, card.description)]


def via_of(details: Mapping[str, Any]) -> list[Any]:
    """Return the digests in the annotation VIA of a skill; empty if there are none."""
    via = (object_at(details, "annotations", "extra") or {}).get(VIA)
    return via if is_array(via) else []


def url_digest(url: str) -> str:
    """Return a digest of the URL of an agent."""
    return sha256(url.rstrip("/").encode()).hexdigest()[:16]


def details_of_skills(card: AgentCard) -> Mapping[str, Any]:
    """Return the details of the skills in the extension of this project; empty without it."""
    params = next((e.params for e in card.capabilities.extensions if e.uri == EXTENSION_URI), None)
    return object_at(params, "skills") or {}


def free_id(name: str, taken: Mapping[str, Any]) -> str:
    """Return *name* as a valid id of a module; a number is added if the id is taken already.

    >>> free_id("remote.weather.Get-Forecast", {})
    'remote.weather.get_forecast'
    >>> free_id("remote.a.b", {"remote.a.b": None})
    'remote.a.b_2'
    """
    segments = [re.sub(r"[^a-z0-9_]", "_", part) or "_" for part in name.lower().split(".")]
    module_id = ".".join(part if "a" <= part[0] <= "z" else f"s{part}" for part in segments)
    if len(module_id) > MAX_ID - 10:  # leaves 10 characters for a number
        module_id = f"{module_id[: MAX_ID - 30]}_{sha256(name.encode()).hexdigest()[:12]}"
    number, candidate = 1, module_id
    while candidate in taken:
        number += 1
        candidate = f"{module_id}_{number}"
    return candidate


def module_for(agent: Connection, module_id: str, entry: Entry) -> RemoteSkill:
    """Return the module for a skill."""
    kind = StreamingRemoteSkill if entry.streams else RemoteSkill
    return kind(agent, module_id, entry)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _examples(declared: Any) -> Iterator[ModuleExample]:
    for example in declared[:10] if is_array(declared) else ():
        if is_object(example) and is_object(example.get("inputs")):
            output = example.get("output")
            yield ModuleExample(
                _text(example.get("title")), example["inputs"], output if is_object(output) else {}
            )
