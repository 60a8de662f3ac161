"""JSON to the SDK's 1.0 types, whatever dialect it is in.

Reading is lenient where the spellings of A2A 1.0, A2A 0.3 and the SRS can't be confused;
members nobody knows are passed over (A2A 1.0 §5.7), and a wrong type is an error that names
the member. The types of the members come from the SDK's own descriptors.
"""

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from a2a.utils.errors import InvalidParamsError, JSONParseError
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from apcore_a2a_core import OutputError, load_json, narrow, to_value
from apcore_a2a_core.schema import is_array, is_object
from apcore_a2a_core.states import ROLES, STATES

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

MAX_MEMBERS = 250_000
MAX_ITEMS = 1000
FILES = ("raw", "bytes", "url", "uri")
CONTENTS = {"text": "text", "data": "data"} | dict.fromkeys(FILES, "file")
"""The members that hold a part's content, and the `kind` of such a part in 0.3."""


def invalid(field: str, description: str) -> InvalidParamsError:
    """The error for one wrong member."""
    errors = [{"field": field, "code": "invalid", "message": description}]
    return InvalidParamsError(f"Invalid params: {field} {description}", data={"errors": errors})


def parse_json(body: bytes) -> Any:
    """The JSON value in *body* (RFC 8259: UTF-8, no NaN or Infinity, names only once).

    Raises:
        JSONParseError: It is not JSON, or nested too deep to be read.
        InvalidParamsError: It has so many members that reading it would hold up others.
    """
    if body.count(b'":') > MAX_MEMBERS:
        raise invalid("params", f"must have at most {MAX_MEMBERS} members")
    try:
        return load_json(body.decode())
    except ValueError:
        raise JSONParseError from None


def decode(kind: type[M], value: Any, path: str = "params") -> M:
    """A message of *kind* from its JSON.

    Args:
        kind: A request of the SDK, such as `a2a.types.GetTaskRequest`.
        value: The parsed JSON.
        path: What the value is called in errors.

    Raises:
        InvalidParamsError: A member is not of its type.

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
    return message


def _fill(message: Message, value: Any, path: str) -> None:
    if not is_object(value):
        raise invalid(path, "must be an object")
    descriptor = message.DESCRIPTOR
    modern = _MODERN.get(descriptor.name)
    members: Json = modern(value, path) if modern is not None else value
    readers = _readers(descriptor)
    message.SetInParent()
    for name, item in members.items():
        reader = readers.get(name)
        if reader is not None and (item is not None or name == "data"):
            reader(message, item, f"{path}.{name}")


@cache
def _readers(descriptor: Descriptor) -> dict[str, Reader]:
    """What each member of a message's JSON does to the message."""
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
    except ValueError as error:  # its text is one of ours, here or in core
        raise invalid(path, str(error)) from None


def _list(value: Any, path: str) -> list[Any]:
    if not is_array(value) or len(value) > MAX_ITEMS:
        raise invalid(path, f"must be an array of at most {MAX_ITEMS} items")
    return value


def _a(kind: type, problem: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(problem)
        return value

    return convert


def _one_of(known: dict[str, int], problem: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if not isinstance(value, str) or value not in known:
            raise ValueError(problem)
        return known[value]

    return convert


_text = _a(str, "must be a string")


def _whole(value: Any) -> int:
    """A whole number that is not negative; SDK clients write it as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError("must be a whole number")
    return value


def _bytes(value: Any) -> bytes:
    """Base64 in either alphabet, padded or not, as ProtoJSON takes it."""
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
    """A JSON value as protobuf's, integers beyond 2^53 as the nearest double.

    Raises:
        ValueError: It has too many keys, is nested too deep, or has too large a number.
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
    FieldDescriptor.TYPE_BOOL: _a(bool, "must be true or false"),
    FieldDescriptor.TYPE_INT32: _whole,
    FieldDescriptor.TYPE_BYTES: _bytes,
    "TaskState": _one_of(STATES, "must be a task state"),
    "Role": _one_of(ROLES, "must be user or agent"),
    "Value": carried,
    "Struct": _struct,
    "Timestamp": _timestamp,
}


def _part(value: Json, path: str) -> Json:
    """A part without 0.3's `file` object and wrapping of data, and with one content."""
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
        rest = {name: item for name, item in metadata.items() if name != "data_part_compat"}
        value = {**value, "data": data.get("value"), "metadata": rest or None}
    return {name: item for name, item in value.items() if name in contents or name not in CONTENTS}


def _configuration(value: Json, path: str) -> Json:
    blocking = value.get("blocking")
    if blocking is None:
        return value
    if not isinstance(blocking, bool):
        raise invalid(f"{path}.blocking", "must be true or false")
    return {"returnImmediately": not blocking, **value}


def _send(value: Json, path: str) -> Json:
    """A send with what stands beside the message, as the SRS has it, in the message."""
    message = value.get("message")
    if not is_object(message):
        raise invalid(f"{path}.message", "must be an object")
    beside = {name: value[name] for name in ("contextId", "taskId") if value.get(name)}
    return {**value, "message": {**beside, **message}} if beside else value


def _config(value: Json, path: str) -> Json:
    """A push configuration without 0.3's `pushNotificationConfig` object, if it has one."""
    nested = value.get("pushNotificationConfig")
    return {**value, **nested, "taskId": value.get("taskId")} if is_object(nested) else value


def _authentication(value: Json, path: str) -> Json:
    """With the first of 0.3's `schemes`."""
    schemes = value.get("schemes")
    return {"scheme": next(iter(schemes), None) if is_array(schemes) else schemes, **value}


def _address(value: Json, path: str) -> Json:
    """Which configuration is meant: in 0.3 `id` is the task's."""
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
