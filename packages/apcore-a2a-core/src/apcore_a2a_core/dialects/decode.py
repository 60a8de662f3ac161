"""Conversion of JSON in any dialect to the SDK's 1.0 types.

The spellings of A2A 1.0, A2A 0.3 and the SRS are all accepted where they cannot be confused.
Unknown members are ignored (A2A 1.0 §5.7), and a value of a wrong type is an error that names its
member. The types of the members come from the descriptors of the SDK.
"""

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from a2a.utils.errors import A2AError, InvalidParamsError, JSONParseError
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from apcore_a2a_core import OutputError, load_json, narrow, to_value
from apcore_a2a_core.records import Version
from apcore_a2a_core.schema import is_array, is_object
from apcore_a2a_core.states import ROLES, STATES
from apcore_a2a_core.values import MAX_VALUES, JsonSizeError

Json: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[Any, Any, str], None]
M = TypeVar("M", bound=Message)

ALIASES: dict[str, dict[str, str]] = {
    "Part": {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"},
    "ListTasksRequest": {"limit": "pageSize", "cursor": "pageToken", "state": "status"},
    "GetTaskRequest": {"taskId": "id"},
    "CancelTaskRequest": {"taskId": "id"},
    "SubscribeToTaskRequest": {"taskId": "id"},
    "SendMessageConfiguration": {"pushNotificationConfig": "taskPushNotificationConfig"},
}
"""Members of A2A 0.3 and of the SRS, and their names in A2A 1.0, by type of message."""

TASK_ID: dict[str, dict[Version, str]] = {"task_id": {"1.0": "taskId", "0.3": "id"}}
CONFIG_ID: dict[str, dict[Version, str]] = {**TASK_ID, "id": {"1.0": "id"}}
REQUIRED: dict[str, dict[str, dict[Version, str]]] = {
    **{
        name: {"id": {"1.0": "id", "0.3": "id"}}
        for name in ("GetTaskRequest", "CancelTaskRequest", "SubscribeToTaskRequest")
    },
    "TaskPushNotificationConfig": {"task_id": {"1.0": "taskId", "0.3": "taskId"}},
    "GetTaskPushNotificationConfigRequest": CONFIG_ID,
    "DeleteTaskPushNotificationConfigRequest": CONFIG_ID,
    "ListTaskPushNotificationConfigsRequest": TASK_ID,
}
"""The members with a text that a request must have, and their spelling in each version."""

MAX_ITEMS = 1000
"""Maximum number of items in an array of a message, such as its parts."""
FILES = ("raw", "bytes", "url", "uri")
CONTENTS = {"text": "text", "data": "data"} | dict.fromkeys(FILES, "file")
"""The members that hold a part's content, and the `kind` of such a part in 0.3."""


class BodySizeError(A2AError):
    """A request whose JSON would block others while it is parsed."""

    code = -32600
    status = 413
    """The HTTP status of the answer."""


def invalid(field: str, description: str) -> InvalidParamsError:
    """Return the error for one wrong member."""
    errors = [{"field": field, "code": "invalid", "message": description}]
    return InvalidParamsError(f"Invalid params: {field} {description}", data={"errors": errors})


def parse_json(body: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse *body* as strict JSON (RFC 8259: UTF-8, no NaN or Infinity, no duplicate names).

    Raises:
        JSONParseError: The body is not JSON.
        BodySizeError: The body has too many values, or is nested too deep, to be parsed.
    """
    try:
        return load_json(body.decode(), max_values)
    except JsonSizeError as error:
        raise BodySizeError(f"The body {error}") from None
    except ValueError:
        raise JSONParseError from None


def decode(kind: type[M], value: Any, path: str = "params", *, version: Version | None = None) -> M:
    """Convert JSON to a message of the SDK.

    Args:
        kind: Type of the message, such as `a2a.types.GetTaskRequest`.
        value: The parsed JSON.
        path: Name of the value in error messages.
        version: The protocol version that says which members a request must have; None to
            require none.

    Raises:
        InvalidParamsError: A member has a wrong type, is given in two spellings, or is missing.

    Example:
        ```python
        from a2a.types import GetTaskRequest
        from apcore_a2a_core.dialects import decode

        print(decode(GetTaskRequest, {"id": "t1", "historyLength": 2.0}).history_length)
        #> 2
        ```
    """
    message = kind()
    _fill(message, value, path)
    if version is not None:
        _require(message, value, path, version)
    return message


def _require(message: Any, value: Json, path: str, version: Version) -> None:
    """Check that a request has all required members (§5.7).

    Raises:
        InvalidParamsError: A member is missing.
    """
    for name, spellings in REQUIRED.get(message.DESCRIPTOR.name, {}).items():
        if spelling := spellings.get(version):
            _require_text(getattr(message, name), f"{path}.{spelling}")
    if message.DESCRIPTOR.name == "SendMessageRequest":
        user = {"1.0": "ROLE_USER", "0.3": "user"}[version]
        if message.message.role != ROLES[user]:
            raise invalid(f"{path}.message.role", f"must be {user}")
        # the SRS's examples, which have neither, are older than 0.3
        if version == "1.0" or "kind" in value["message"]:
            _require_text(message.message.message_id, f"{path}.message.messageId")


def _require_text(text: str, path: str) -> None:
    if not text:
        raise invalid(path, "is required")


def _fill(message: Message, value: Any, path: str) -> None:
    if not is_object(value):
        raise invalid(path, "must be an object")
    descriptor = message.DESCRIPTOR
    value = _respelled(_proto_spellings(descriptor), value, path)
    modern = _MODERN.get(descriptor.name)
    members: Json = modern(value, path) if modern is not None else value
    readers = _readers(descriptor)
    message.SetInParent()
    for name, item in members.items():
        reader = readers.get(name)
        if reader is not None and (item is not None or name == "data"):
            reader(message, item, f"{path}.{name}")


def _respelled(spellings: dict[str, str], value: Json, path: str) -> Json:
    """Return an object with `context_id` as `contextId` and so on: ProtoJSON accepts both.

    Raises:
        InvalidParamsError: A member is given in both spellings.
    """
    if spellings.keys().isdisjoint(value):
        return value
    for proto_name, name in spellings.items():
        if proto_name in value and name in value:
            raise invalid(f"{path}.{name}", f"must not be given as {proto_name} too")
    return {spellings.get(name, name): item for name, item in value.items()}


@cache
def _proto_spellings(descriptor: Descriptor) -> dict[str, str]:
    """Return the JSON name of each member whose name in the protocol's `.proto` file differs."""
    return {f.name: f.json_name for f in descriptor.fields if f.name != f.json_name}


@cache
def _readers(descriptor: Descriptor) -> dict[str, Reader]:
    """Return the functions that read each member of a message's JSON into the message."""
    readers = {field.json_name: _reader(field) for field in descriptor.fields}
    for alias, name in ALIASES.get(descriptor.name, {}).items():
        readers[alias] = readers[name]
    return readers


def _reader(field: FieldDescriptor) -> Reader:
    name, convert = field.name, _CONVERT.get(_type_of(field))

    def read_scalar(message: Any, value: Any, path: str) -> None:
        setattr(message, name, _converted(convert, value, path))

    def read_well_known(message: Any, value: Any, path: str) -> None:
        getattr(message, name).CopyFrom(_converted(convert, value, path))

    def read_message(message: Any, value: Any, path: str) -> None:
        _fill(getattr(message, name), value, path)

    def read_scalars(message: Any, value: Any, path: str) -> None:
        getattr(message, name).extend(
            _converted(convert, item, path) for item in _list(value, path)
        )

    def read_messages(message: Any, value: Any, path: str) -> None:
        add = getattr(message, name).add
        for index, item in enumerate(_list(value, path)):
            _fill(add(), item, f"{path}[{index}]")

    if field.is_repeated:
        return read_scalars if convert is not None else read_messages
    if convert is None:
        return read_message
    return read_well_known if field.message_type is not None else read_scalar


def _type_of(field: FieldDescriptor) -> object:
    named = field.message_type or field.enum_type
    return named.name if named is not None else field.type


def _converted(convert: Any, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except OverflowError:
        raise invalid(path, "has a number that is too large") from None
    except ValueError as error:  # its message comes from this package and is safe to show
        raise invalid(path, str(error)) from None


def _list(value: Any, path: str) -> list[Any]:
    if not is_array(value) or len(value) > MAX_ITEMS:
        raise invalid(path, f"must be an array of at most {MAX_ITEMS} items")
    return value


def _instance_of(kind: type, problem: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(problem)
        return value

    return convert


def _one_of(values: dict[str, int], problem: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if not isinstance(value, str) or value not in values:
            raise ValueError(problem)
        return values[value]

    return convert


_text = _instance_of(str, "must be a string")


def _whole(value: Any) -> int:
    """Return a whole number that is not negative; clients of the SDK write it as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError("must be a whole number")
    return value


def _bytes(value: Any) -> bytes:
    """Decode base64 in either alphabet, padded or not, as ProtoJSON accepts it."""
    text = _text(value).replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


def _timestamp(value: Any) -> Timestamp:
    result = Timestamp()
    try:
        result.FromJsonString(_text(value))
    except ValueError:
        raise ValueError("must be an ISO 8601 time") from None
    return result


def carried(value: Any) -> Value:
    """Convert a JSON value to protobuf, with integers beyond 2^53 as the nearest double.

    Raises:
        ValueError: The value has too many keys, too deep a nesting, or too large a number.
    """
    value = narrow(value)
    try:
        return to_value(value)
    except OutputError:
        return to_value(_rounded(value))


def _rounded(value: Any) -> Any:
    if is_object(value):
        return {name: _rounded(item) for name, item in value.items()}
    if is_array(value):
        return [_rounded(item) for item in value]
    return float(value) if type(value) is int else value


def _struct(value: Any) -> Struct:
    if not is_object(value):
        raise ValueError("must be an object")
    return carried(value).struct_value


_CONVERT: dict[object, Callable[[Any], Any]] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BOOL: _instance_of(bool, "must be true or false"),
    FieldDescriptor.TYPE_INT32: _whole,
    FieldDescriptor.TYPE_BYTES: _bytes,
    "TaskState": _one_of(STATES, "must be a task state"),
    "Role": _one_of(ROLES, "must be user or agent"),
    "Value": carried,
    "Struct": _struct,
    "Timestamp": _timestamp,
}


def _part(value: Json, path: str) -> Json:
    """Unwrap the `file` object and the data of a part of 0.3, and check that it has one content."""
    file = value.get("file")
    value = {**value, **file} if is_object(file) else value
    contents = [name for name in CONTENTS if value.get(name) is not None]
    if not contents and "data" in value:
        contents = ["data"]
    kind = value.get("kind", value.get("type"))
    if len(contents) != 1 or kind not in (None, CONTENTS[contents[0]]):
        raise invalid(path, "must be one text, one piece of data, or one file")
    metadata, data = value.get("metadata"), value.get("data")
    if is_object(metadata) and metadata.get("data_part_compat") is True and is_object(data):
        others = {name: item for name, item in metadata.items() if name != "data_part_compat"}
        value = {**value, "data": data.get("value"), "metadata": others or None}
    return {name: item for name, item in value.items() if name in contents or name not in CONTENTS}


def _configuration(value: Json, path: str) -> Json:
    blocking = value.get("blocking")
    if blocking is None:
        return value
    if not isinstance(blocking, bool):
        raise invalid(f"{path}.blocking", "must be true or false")
    return {"returnImmediately": not blocking, **value}


def _send(value: Json, path: str) -> Json:
    """Move `contextId` and `taskId`, which the SRS puts next to the message, into the message."""
    message = value.get("message")
    if not is_object(message):
        raise invalid(f"{path}.message", "must be an object")
    ids = {name: value[name] for name in ("contextId", "taskId") if value.get(name)}
    return {**value, "message": {**ids, **message}} if ids else value


def _config(value: Json, path: str) -> Json:
    """Unwrap the `pushNotificationConfig` object of 0.3, if there is one."""
    nested = value.get("pushNotificationConfig")
    return {**value, **nested, "taskId": value.get("taskId")} if is_object(nested) else value


def _authentication(value: Json, path: str) -> Json:
    """Join the `schemes` of 0.3 with commas, which no scheme has: the type of 1.0 has only one."""
    schemes = value.get("schemes")
    if is_array(schemes):
        if not all(isinstance(scheme, str) and "," not in scheme for scheme in schemes):
            raise invalid(f"{path}.scheme", "must be HTTP authentication schemes")
        schemes = ",".join(schemes)
    return {"scheme": schemes, **value}


def _address(value: Json, path: str) -> Json:
    """Convert the ids of a request for a push config: in 0.3, `id` is the id of the task."""
    config = {"id": value.get("pushNotificationConfigId")}
    return {**config, **value} if "taskId" in value else {"taskId": value.get("id"), **config}


_MODERN: dict[str, Callable[[Json, str], Json]] = {
    "AuthenticationInfo": _authentication,
    "DeleteTaskPushNotificationConfigRequest": _address,
    "GetTaskPushNotificationConfigRequest": _address,
    "ListTaskPushNotificationConfigsRequest": _address,
    "Part": _part,
    "TaskPushNotificationConfig": _config,
    "SendMessageConfiguration": _configuration,
    "SendMessageRequest": _send,
}
