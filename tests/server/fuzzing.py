"""Requests that are generated from the protocol's own schemas and then corrupted.

The schemas are the JSON Schema of A2A 0.3 and, for 1.0, the descriptors of the SDK's messages.
A request names a task by a placeholder for its kind, such as `@working`: no draw depends on the
server, so that each case can be reproduced.
"""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from a2a import types as a2a
from apcore_a2a_core.dialects import ALIASES
from apcore_a2a_server.bindings.operations import METHODS
from google.api.field_behavior_pb2 import (  # type: ignore[import-untyped]  # no py.typed
    REQUIRED,
    field_behavior,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from .checking_client import Json
from .modules import EXCEPTIONS, OUTPUTS

Values: TypeAlias = st.SearchStrategy[Any]
JsonPath: TypeAlias = tuple[Any, ...]
"""A path into a JSON value: the names and indexes that lead there."""
Change: TypeAlias = Callable[[Any], Any]
Edit: TypeAlias = Callable[[Any, JsonPath], Any]
"""A function that edits a JSON value at a path and returns a new value."""

TASK_PLACEHOLDERS = {
    "@finished": ("echo", "completed"),
    "@failed": ("raises", "failed"),
    "@canceled": ("slow", "canceled"),
    "@working": ("slow", "working"),
    "@asking": ("ask", "input-required"),
    "@approving": ("approve", "input-required"),
}
"""Placeholders for the ids of tasks, each with the task's skill and state."""

EXCEPTION_INPUTS, OUTPUT_INPUTS = (
    [{"what": what} for what in cases] for cases in (EXCEPTIONS, OUTPUTS)
)
EVIL, EVIL_TEXT = "^(a+)+$", "a" * 60 + "!"
"""A pattern, and a text that Python's `re` would need years to match."""
COSTLY: Json = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "pattern": EVIL},
        "list": {"type": "array", "uniqueItems": True},
        "mail": {"type": "string", "format": "email"},
    },
    "patternProperties": {EVIL: {"type": "string"}},
}
"""A schema with keywords whose naive validation takes exponential or quadratic time."""
INPUTS: dict[str, list[Json]] = {
    "echo": [{"text": "hello"}],
    "mirror": [{"value": [1, 2.5, 2**53, None, {"a": "b"}]}],
    "anything": [{"a": {"b": [True]}}],
    "order.total": [{"customer": {"text": "x"}, "items": [{"name": "y", "count": 2}]}],
    "slow": [{}],
    "ask": [{"text": "what?"}, {"text": "yes"}],
    "approve": [{"text": "now"}],
    "nested": [{"what": "echo"}, {"what": "nowhere"}],
    "costly": [{"text": "aaaa"}, {"text": EVIL_TEXT}, {"list": [[n] for n in range(3000)]}],
    "raises": EXCEPTION_INPUTS,
    "raises.later": EXCEPTION_INPUTS,
    "raises.stream": EXCEPTION_INPUTS,
    "bad_output": OUTPUT_INPUTS,
    "bad_output.stream": OUTPUT_INPUTS,
}
"""Skills, each with inputs, the first of which is accepted."""

# Schemas

SCHEMA = Path(__file__).parents[1] / "data" / "a2a-0.3.0.schema.json"
DEFINITIONS: Json = json.loads(SCHEMA.read_text(encoding="utf-8"))["definitions"]
SCALARS = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}
WELL_KNOWN: dict[str, Json] = {
    "Struct": {"type": "object"},
    "Value": {},
    "Timestamp": {"type": "string", "format": "date-time"},
}


def message_schema(descriptor: Descriptor) -> Json:
    """Return the JSON Schema of a protobuf message, with one alternative per `oneof` member."""
    if descriptor.name in WELL_KNOWN:
        return WELL_KNOWN[descriptor.name]
    members = {field.json_name: _field_schema(field) for field in descriptor.fields}
    choices = [field.json_name for field in descriptor.fields if _is_choice(field)]
    required = [field.json_name for field in descriptor.fields if _is_required(field)]
    fixed = {name: schema for name, schema in members.items() if name not in choices}
    alternatives = [{**fixed, name: members[name]} for name in choices] or [fixed]
    common = {"type": "object", "required": [*required, *choices]}
    return {"anyOf": [{**common, "properties": properties} for properties in alternatives]}


def _field_schema(field: FieldDescriptor) -> Json:
    if field.message_type is not None:
        schema = message_schema(field.message_type)
    elif field.enum_type is not None:
        schema = {"enum": [value.name for value in field.enum_type.values]}
    else:
        schema = SCALARS[field.type]
    return {"type": "array", "items": schema} if field.is_repeated else schema


def _is_choice(field: FieldDescriptor) -> bool:
    choice = field.containing_oneof
    return choice is not None and not choice.name.startswith("_")


def _is_required(field: FieldDescriptor) -> bool:
    return REQUIRED in field.GetOptions().Extensions[field_behavior]


def request_schema(method: str) -> Json:
    """Return the JSON Schema of a request: the published one of 0.3, or a generated one of 1.0."""
    for definition in DEFINITIONS.values():
        if definition.get("properties", {}).get("method", {}).get("const") == method:
            schema: Json = definition
            return schema
    members = {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"]},
        "method": {"const": method},
        "params": message_schema(getattr(a2a, METHODS[method][1].__name__).DESCRIPTOR),
    }
    return {"type": "object", "properties": members, "required": [*members]}


def names_in(schema: Any) -> Iterator[str]:
    """Yield the names of all members in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from names_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from names_in(inner)


# Values

ODD_STRINGS = [
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u2028\u2029", "\x1b[31m", "\r\n\r\n"),
    *("é" * 257, "x" * 256, "x" * 257, "\U0001f600", "\ufeff", "\u202e", "%00", "%s", "__class__"),
    *("../../../passwd", "C:\\Windows\\win.ini", "file:///dev/null", "http://[::1", "-1"),
    *("' OR 1=1; --", '"; DROP TABLE tasks; --', "{{7*7}}", "${jndi:ldap://x}", "<script>"),
    *("null", "true", "NaN", "1e999", "__proto__", "@unknown", "{", "[1", '{"a":'),
    *(EVIL_TEXT, "x@" + "." * 20_000 + "@"),
]
NUMBERS = [
    *(0, 1, 2, 50, 100, 101, 1000, -1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63, -(2**63)),
    *(10**400, -0.0, 0.5, 1.0, 3.0, 1e16, 1e22, 1e308, -1e308, 5e-324),
]
GOOD_TOKENS = [
    *("1e999", "-1e999", "1e-999", "-0", "1E+2", "1.0e0", "9" * 400, "{}", "[[]]", '{"a": {}}'),
    "9" * 1500,
    *('"\\ud800"', '"\\u0000"', '"\u2028"', '"\\ud83d\\ude00"'),
]
"""Valid JSON values."""
BAD_TOKENS = [
    *("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10", "9" * 5000, '"\\x"', "'a'"),
    *("undefined", "True", "nul", "", "/* */ 1", '"\t"', '"a" "b"', "[,]", "[1,]", '{"a":1,}'),
    *('{"a": 1, "a": 2}', "\ufeff{}"),
]
"""Invalid JSON values, and two that only some parsers take: 5,000 digits, and a repeated name."""
TIMES = [
    *("2024-02-29T23:59:59Z", "2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00+23:59"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1969-12-31T00:00:00Z"),
    *("2024-02-30T00:00:00Z", "2024-01-01", "24:00", "10000-01-01T00:00:00Z"),
]
BASE64 = ["", "aGVsbG8=", "aGVsbG8", "a", "-_-_", "!!!!", "////", "aGVs bG8=", "AAAA" * 1000]
URLS = ["https://example.com/x.png?y", "http://[::1", "//", "x.png", "data:,%ff", "\ud800:\0"]
PLAIN = ["m1", "hello", "yes", "no", "1", "https://example.com/x.png?y", "text/plain", *INPUTS]
often = st.sampled_from([True] * 5 + [False])


@st.composite
def mostly(draw: st.DrawFn, usual: Values, unusual: Values) -> Any:
    """Draw from *usual* most of the time, and from *unusual* sometimes."""
    return draw(usual if draw(often) else unusual)


short_texts = st.text("a1é€😀\t\n\0\"'\\/{}[],:<&%.*-\x7f\u0301\u202e\u2029", max_size=5)
strings = mostly(st.sampled_from(PLAIN), st.sampled_from(ODD_STRINGS) | short_texts)
numbers = st.sampled_from(NUMBERS) | st.integers(-3, 300)
anything: Values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=4,
)
depths = st.sampled_from([30, 31, 100, 900, 30_000])
"""Nesting depths below and above the limit of 64; none reaches the limit of 100,000 values."""
tokens = st.one_of(
    st.sampled_from(GOOD_TOKENS),
    st.sampled_from(BAD_TOKENS),
    depths.map(lambda depth: "[" * depth + "]" * depth),
    depths.map(lambda depth: '{"a":' * depth + "1" + "}" * depth),
)
odd: Values = st.one_of(
    st.sampled_from([None, True, False, [], {}, [[]], [{}], {"": {}}, [None] * 1001, ["x"] * 1001]),
    st.sampled_from([{"value": None}, {"_approval_token": "x"}, {"data_part_compat": True}]),
    st.sampled_from(ODD_STRINGS),
    st.sampled_from([5000, 70_000]).map(lambda length: "x" * length),
    tokens,
    st.sampled_from([2**53 + 1, 10**400, -(10**400), 0.5]),
    numbers,
    anything,
)
tasks = st.sampled_from([*TASK_PLACEHOLDERS, *TASK_PLACEHOLDERS, "@unknown"])

LEAVES: dict[str, Values] = {
    "string": strings,
    "integer": numbers,
    "boolean": st.booleans(),
    "null": st.none(),
    "object": st.dictionaries(strings, anything, max_size=2),
    "date-time": st.sampled_from(TIMES),
    "base64": st.sampled_from(BASE64),
}
MEANINGFUL: dict[str, Values] = {
    "id": tasks,
    "taskId": tasks,
    "contextId": st.sampled_from(["c1", "c2"]),
    "messageId": st.just("m1"),
    "role": st.sampled_from(["user", "ROLE_USER"]),
    "pageSize": st.integers(0, 101),
    "pageToken": st.sampled_from(["0", "3", "1000"]),
    "historyLength": st.integers(0, 3),
    "metadata": st.fixed_dictionaries(
        {}, optional={"skillId": st.sampled_from([*INPUTS]), "data_part_compat": st.just(True)}
    ),
}
"""Meaningful values of members; they are drawn most of the time."""


def values(schema: Json) -> Values:
    """Return a strategy for values that fit a JSON Schema."""
    match schema:
        case {"$ref": str(reference)}:
            return values(DEFINITIONS[reference.rpartition("/")[2]])
        case {"const": value}:
            return st.just(value)
        case {"enum": list(choices)}:
            return st.sampled_from(choices)
        case {"anyOf": list(alternatives)}:
            return st.one_of(*map(values, alternatives))
        case {"properties": dict(members)}:
            return _objects(members, schema.get("required", ()))
        case {"items": dict(items)}:
            return st.lists(values(items), max_size=2)
        case {"type": list(kinds)}:
            return st.one_of(*(LEAVES[kind] for kind in kinds))
        case {"type": kind}:
            return LEAVES[schema.get("format") or schema.get("contentEncoding") or kind]
        case _:
            return anything


def _objects(members: Json, required: Any) -> Values:
    meaningful = {} if "jsonrpc" in members else MEANINGFUL  # a request's id is no task's
    strategies = {
        name: mostly(meaningful[name], values(schema)) if name in meaningful else values(schema)
        for name, schema in members.items()
    }
    required_members = {name: strategies.pop(name) for name in required if name in strategies}
    return st.fixed_dictionaries(required_members, optional=strategies)


@cache
def requests(method: str) -> Values:
    """Return a strategy for requests that fit the schema of a method; their values may be odd."""
    return values(request_schema(method))


OLD_FILES = {"url": "uri", "raw": "bytes"}
CONTENTS = {"url": st.sampled_from(URLS), "raw": st.sampled_from(BASE64)}
contents = st.sampled_from(["text", "text", "data", "data", "data", "url", "raw"])
targets = st.sampled_from([None] * 4 + [*TASK_PLACEHOLDERS])
skill_calls = st.one_of(
    *(st.tuples(st.just(skill), st.sampled_from(inputs)) for skill, inputs in INPUTS.items())
)


def part_of(kind: str, content: Any, *, modern: bool) -> Json:
    """Return a part of 1.0 or of 0.3."""
    if modern:
        return {kind: content}
    if kind in OLD_FILES:
        return {"kind": "file", "file": {OLD_FILES[kind]: content}}
    return {"kind": kind, kind: content}


def likely_valid(draw: st.DrawFn, params: Json, *, modern: bool) -> Json:
    """Turn *params* into a send that is likely valid: a call of a skill, or a message to a task."""
    (skill, inputs), task = draw(skill_calls), draw(targets)
    kind = draw(contents)
    content = draw(CONTENTS[kind]) if kind in CONTENTS else inputs
    part = part_of(kind, json.dumps(inputs) if kind == "text" else content, modern=modern)
    message = {**params["message"], "taskId": task, "parts": [part, *params["message"]["parts"]]}
    if task is not None:
        message.pop("contextId", None)
    configuration = dict(params.get("configuration", {}))
    for name in ("pushNotificationConfig", "taskPushNotificationConfig"):
        configuration.pop(name, None)  # they are refused before anything else is checked
    metadata = {**params.get("metadata", {}), **({} if task else {"skillId": skill})}
    return {**params, "message": message, "configuration": configuration, "metadata": metadata}


# Corrupting requests


def paths_in(value: Any, path: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield the paths in a JSON value, the root first; skip all but five items of each array."""
    yield path
    inside = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value[:5]) if isinstance(value, list) else inside:
        yield from paths_in(inner, (*path, key))


def changed(value: Any, path: JsonPath, change: Change) -> Any:
    """Return a copy of *value* with *change* applied at *path*."""
    if not path:
        return change(value)
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], change)
    return copy


def changing(change: Change) -> Edit:
    return lambda value, path: changed(value, path, change)


def replacing(new: Any) -> Edit:
    return changing(lambda _: new)


def adding(name: str, new: Any) -> Edit:
    return changing(lambda it: {**it, name: new} if isinstance(it, dict) else [it, new])


def removing(value: Any, path: JsonPath) -> Any:
    def remove(holder: Any) -> Any:
        copy = holder.copy()
        del copy[path[-1]]
        return copy

    return changed(value, path[:-1], remove) if path else {}


def renaming(name: str) -> Edit:
    def rename(value: Any, path: JsonPath) -> Any:
        def change(holder: Any) -> Any:
            if not isinstance(holder, dict):
                return holder
            return {name if key == path[-1] else key: item for key, item in holder.items()}

        return changed(value, path[:-1], change) if path else value

    return rename


def setting(name: str) -> Callable[[Any], Change]:
    return lambda value: lambda request: {**request, name: value}


def without(name: str) -> Change:
    return lambda request: {key: value for key, value in request.items() if key != name}


WRAPS: list[Change] = [lambda v: [v], lambda v: {"value": v}, lambda v: [v, v], str]
WRONG_SHAPES: list[Change] = [*WRAPS, lambda request: [], lambda request: request.get("params")]
SCHEMA_NAMES = {
    name for method in METHODS for name in names_in([request_schema(method), DEFINITIONS])
}
ALIASED = {name for aliases in ALIASES.values() for name in aliases} | {"skillId", "type"}
names = st.sampled_from(sorted(SCHEMA_NAMES | ALIASED)) | st.sampled_from(ODD_STRINGS)
edits: st.SearchStrategy[Edit] = st.one_of(
    *(odd.map(replacing) for _ in range(3)),
    anything.map(replacing),
    st.just(removing),
    st.builds(adding, names, odd),
    names.map(renaming),
    st.sampled_from(WRAPS).map(changing),
)

IDS: list[Any] = [None, "", "x" * 300, 0, -1, 1.5, 2**70, True, [], {}, "\ud800", "@working", 1e22]
VERSIONS: list[Any] = ["1.0", "2", 2.0, 2, None, "", []]
BAD_METHODS: list[Any] = [
    "",
    "send",
    "message/Send",
    "rpc.discover",
    "SendMessage\0",
    "__init__",
    5,
    [],
]
envelope_changes: st.SearchStrategy[Change] = st.one_of(
    st.sampled_from(VERSIONS).map(setting("jsonrpc")),
    st.sampled_from(IDS).map(setting("id")),
    st.sampled_from([*BAD_METHODS, *METHODS]).map(setting("method")),
    odd.map(setting("params")),
    st.sampled_from(["jsonrpc", "id", "method", "params"]).map(without),
    st.sampled_from(WRONG_SHAPES),
)


def corrupted(draw: st.DrawFn, request: Any) -> Any:
    """Return a request with up to three edits, most of them deep inside."""
    for _ in range(draw(st.integers(1, 3))):
        paths = [*paths_in(request)]
        depth = min(draw(st.sampled_from([3, 3, 3, 2, 0])), max(map(len, paths)))
        path = draw(st.sampled_from([path for path in paths if len(path) >= depth]))
        request = draw(edits)(request, path)
    return request


MEMBER = re.compile(r'"\w+": ')
SCALAR = re.compile(r'(?<=: )(?:"[^"\\]*"|-?\d+|true|false|null)')


def with_token(draw: st.DrawFn, text: str) -> str:
    """Insert a token into JSON text: as a duplicate member, instead of a scalar, or at the end."""
    twice, token = draw(st.booleans()), draw(tokens)
    matches = [*(MEMBER if twice else SCALAR).finditer(text)]
    if not matches:
        return text + token
    match = draw(st.sampled_from(matches))
    if twice:
        return f"{text[: match.start()]}{match.group()}{token}, {text[match.start() :]}"
    return text[: match.start()] + token + text[match.end() :]


def broken(draw: st.DrawFn, body: bytes) -> bytes:
    """Return the body with some bytes lost, doubled or replaced."""
    start = draw(st.integers(0, len(body)))
    end = start + draw(st.sampled_from([0, 1, 2, 10, 10**9]))
    new = draw(st.sampled_from([b"", b"\xff", b"\0", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"}"]))
    doubled = draw(st.booleans())
    return body[: end if doubled else start] + new + body[start if doubled else end :]


# Cases

VERSION_HEADERS = [
    *["1.0", "0.3", "0.3.0", "1.0.7", "", " 1.0 "] * 3,
    "2.0",
    "x",
    "1.0,0.3",
    "\xff",
    "1" * 9,
]
MEDIA_TYPES = ["application/json", "application/a2a+json", "APPLICATION/JSON;a", "", "a/b;c=\xff"]
EVENT_IDS = ["0", "1", "2", "99999", "-1", "x", "1" * 20, "\xb2", "\xb9", "1.5", " 1"]
headers: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.fixed_dictionaries({"a2a-version": st.sampled_from(VERSION_HEADERS)}),
    st.fixed_dictionaries({"content-type": st.sampled_from(MEDIA_TYPES)}),
    st.fixed_dictionaries({"last-event-id": st.sampled_from(EVENT_IDS)}),
)
REFUSED = {name for name in METHODS if "push" in name.lower() or "Card" in name}
"""Methods that the fuzzed agent always refuses: it has neither webhooks nor authentication."""
SENDS = {name for name, (_, kind, _) in METHODS.items() if kind.__name__.startswith("Send")}
methods = st.sampled_from([*METHODS, *sorted(METHODS.keys() - REFUSED) * 2, *sorted(SENDS) * 5])
CORRUPTIONS = [*["as it is"] * 3, *["corrupted"] * 5, "in the envelope", "with a token", "broken"]


@dataclass(frozen=True)
class Case:
    """A request as it is sent, except for placeholders of task ids."""

    body: bytes
    headers: dict[str, str]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the case in Hypothesis's output."""
        printer.text(self.curl()[:2000])

    def curl(self) -> str:
        """Return the curl command that sends the case."""
        all_headers = {"content-type": "application/json", **self.headers}
        words = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in all_headers.items()]
        command = " ".join(["curl -s http://127.0.0.1:8000/", *words])
        if self.body.isascii() and self.body.decode().isprintable():
            return f"{command} --data-raw {shlex.quote(self.body.decode())}"
        return f"echo {b64encode(self.body).decode()} | base64 -d | {command} --data-binary @-"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a request for any method, as its schema allows or corrupted in one of several ways."""
    method, corruption = draw(methods), draw(st.sampled_from(CORRUPTIONS))
    request = draw(requests(method))
    if "message" in request.get("params", ()) and draw(often):
        request["params"] = likely_valid(draw, request["params"], modern="/" not in method)
    if corruption == "corrupted":
        request = corrupted(draw, request)
    elif corruption == "in the envelope":
        request = draw(envelope_changes)(request)
    text = json.dumps(request, ensure_ascii=draw(often))
    text = with_token(draw, text) if corruption == "with a token" else text
    body = text.encode(errors="surrogatepass")
    body = broken(draw, body) if corruption == "broken" else body
    return Case(body, draw(headers) if draw(st.booleans()) else {})
