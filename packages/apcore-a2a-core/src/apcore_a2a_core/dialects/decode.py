"""Conversion of JSON to our data, the types in `apcore_a2a_core.data`.

The spellings of A2A 1.0, A2A 0.3 and the SRS (the specification of this project) are all accepted
where they cannot be confused. Unknown members are ignored (A2A 1.0 §5.7). A value of a wrong type
is an error, which names the member as in A2A 1.0, or as in 0.3 if only 0.3 has it. The types of the
members come from their declarations.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from a2a.utils.errors import A2AError, InvalidParamsError, JSONParseError
from msgspec import UnsetType
from msgspec.structs import fields

from apcore_a2a_core.data import (
    AuthenticationInfo,
    Base64,
    D,
    Data,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    Json,
    ListTaskPushNotificationConfigsRequest,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
    Timestamp,
)
from apcore_a2a_core.records import Version
from apcore_a2a_core.states import ROLES, STATES
from apcore_a2a_core.values import MAX_VALUES, JsonSizeError, is_array, is_object, load_json, narrow

Reader: TypeAlias = Callable[[Any], Any]
"""Function that converts a value; its `ValueError` says what is wrong (see `_Problem`)."""

ALIASES: dict[str, dict[str, str]] = {
    "Part": {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"},
    "ListTasksRequest": {"limit": "pageSize", "cursor": "pageToken", "state": "status"},
    "GetTaskRequest": {"taskId": "id"},
    "CancelTaskRequest": {"taskId": "id"},
    "SubscribeToTaskRequest": {"taskId": "id"},
    "SendMessageConfiguration": {"pushNotificationConfig": "taskPushNotificationConfig"},
}
"""Members of A2A 0.3 and of the SRS, and their names in A2A 1.0, by type."""

CONVERTED_MEMBERS: dict[str, tuple[str, ...]] = {
    "SendMessageRequest": ("contextId", "taskId"),
    "TaskPushNotificationConfig": ("pushNotificationConfig",),
    "GetTaskPushNotificationConfigRequest": ("pushNotificationConfigId",),
    "DeleteTaskPushNotificationConfigRequest": ("pushNotificationConfigId",),
}
"""Members of two or more words that `_UPGRADES` converts, by type; also read in snake case."""

TASK_ID: dict[str, dict[Version, str]] = {"task_id": {"1.0": "taskId", "0.3": "id"}}
TASK_AND_CONFIG_ID: dict[str, dict[Version, str]] = {**TASK_ID, "id": {"1.0": "id"}}
REQUIRED: dict[str, dict[str, dict[Version, str]]] = {
    **{
        name: {"id": {"1.0": "id", "0.3": "id"}}
        for name in ("GetTaskRequest", "CancelTaskRequest", "SubscribeToTaskRequest")
    },
    "TaskPushNotificationConfig": {"task_id": {"1.0": "taskId", "0.3": "taskId"}},
    "GetTaskPushNotificationConfigRequest": TASK_AND_CONFIG_ID,
    "DeleteTaskPushNotificationConfigRequest": TASK_AND_CONFIG_ID,
    "ListTaskPushNotificationConfigsRequest": TASK_ID,
}
"""Required attributes by type of request, with their JSON names in the versions that need them."""

MAX_ITEMS = 1000
"""Maximum number of items in an array of the protocol, such as the parts of a message."""
FILE_MEMBERS = ("raw", "bytes", "url", "uri")
FILE_SPELLINGS = {"mime_type": "mimeType", "media_type": "mediaType"}
CONTENTS = {"text": "text", "data": "data"} | dict.fromkeys(FILE_MEMBERS, "file")
"""The members that hold a part's content, and the `kind` of such a part in 0.3."""


class BodySizeError(A2AError):
    """Refusal of a request whose body would block other requests while it is parsed."""

    code = -32600
    status = 413
    """The HTTP status of the response."""


def invalid(field: str, description: str) -> InvalidParamsError:
    """Return the error for one wrong member."""
    errors = [{"field": field, "code": "invalid", "message": description}]
    return InvalidParamsError(f"Invalid params: {field} {description}", data={"errors": errors})


def parse_json(body: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse *body* as strict JSON in UTF-8 (RFC 8259); see `apcore_a2a_core.values.load_json`.

    Raises:
        JSONParseError: The body is not JSON.
        BodySizeError: The body has too many values or too many long integers, or is nested
            too deeply.
    """
    try:
        return load_json(body, max_values)
    except JsonSizeError as error:
        raise BodySizeError(f"The body {error}") from None
    except ValueError:
        raise JSONParseError from None


def decode(kind: type[D], value: Any, path: str = "params", *, version: Version | None = None) -> D:
    """Convert JSON to our data.

    Args:
        kind: The type to convert to, such as `apcore_a2a_core.data.GetTaskRequest`.
        value: The parsed JSON.
        path: Name of the value in error messages.
        version: The protocol version whose required members are checked; None to skip the check.

    Raises:
        InvalidParamsError: A member has a wrong type or value, is missing, or is given under
            both its name in JSON and its name in the `.proto` file.

    Example:
        ```python
        from apcore_a2a_core.data import GetTaskRequest
        from apcore_a2a_core.dialects import decode

        print(decode(GetTaskRequest, {"id": "t1", "historyLength": 2.0}).history_length)
        #> 2
        ```
    """
    try:
        result: D = _struct_reader(kind)(value)
    except ValueError as error:
        problem = _with_path("", error)
        raise invalid(f"{path}{problem.path}", str(problem)) from None
    if version is not None:
        _require(result, value, path, version)
    return result


def _require(request: Data, value: Json, path: str, version: Version) -> None:
    """Check that a request has all required members (§5.7).

    Raises:
        InvalidParamsError: A member is missing, or the message is not from the user.
    """
    for name, json_names in REQUIRED.get(type(request).__name__, {}).items():
        if json_name := json_names.get(version):
            _require_text(getattr(request, name), f"{path}.{json_name}")
    if type(request) is SendMessageRequest:  # `isinstance` is slow for structs when it fails
        user = {"1.0": "ROLE_USER", "0.3": "user"}[version]
        if request.message.role != ROLES[user]:
            raise invalid(f"{path}.message.role", f"must be {user}")
        # examples in the SRS have neither `kind` nor an id: they are older than 0.3
        if version == "1.0" or "kind" in value["message"]:
            _require_text(request.message.message_id, f"{path}.message.messageId")


def _require_text(text: str, path: str) -> None:
    if not text:
        raise invalid(path, "is required")


class _Problem(ValueError):
    """A wrong value in a request.

    Attributes:
        path: Path of the wrong value within the value that is read, such as `.parts[0]`.
    """

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.path = path


def _with_path(step: str, error: ValueError) -> _Problem:
    """Return *error* as a `_Problem` whose path begins with *step*."""
    if isinstance(error, _Problem):
        error.path = f"{step}{error.path}"
        return error
    # error messages of this package are safe to show; those of `narrow` begin with "Input"
    return _Problem(str(error).removeprefix("Input "), step)


@cache
def _struct_reader(kind: type[Data]) -> Reader:
    """Return the function that reads objects of type *kind*."""
    readers, spellings = _members_of(kind)
    upgrade = _UPGRADES.get(kind)

    def read(value: Any) -> Data:
        if value.__class__ is not dict:  # faster than `is_object`
            raise ValueError("must be an object")
        if not spellings.keys().isdisjoint(value):
            value = _with_json_names(spellings, value)
        members: Json = value if upgrade is None else upgrade(value)
        attributes: Json = {}
        for name, item in members.items():
            attribute_and_reader = readers.get(name)
            if attribute_and_reader is not None and (item is not None or name == "data"):
                attribute, read_member = attribute_and_reader
                try:
                    attributes[attribute] = read_member(item)
                except ValueError as error:
                    raise _with_path(f".{name}", error) from None
        return kind(**attributes)

    return read


def _with_json_names(spellings: dict[str, str], value: Json) -> Json:
    """Return an object with `context_id` as `contextId` and so on, since either is accepted.

    Raises:
        ValueError: A member is given in both spellings.
    """
    for proto_name, name in spellings.items():
        if proto_name in value and name in value:
            raise _Problem(f"must not be given as {proto_name} too", f".{name}")
    return {spellings.get(name, name): item for name, item in value.items()}


def _members_of(kind: type[Data]) -> tuple[dict[str, tuple[str, Reader]], dict[str, str]]:
    """Return attributes and readers by JSON name, and JSON names by their form in snake case."""
    readers = {
        field.encode_name: (field.name, _member_reader(field.type)) for field in fields(kind)
    }
    for alias, name in ALIASES.get(kind.__name__, {}).items():
        readers[alias] = readers[name]
    names = (*readers, *CONVERTED_MEMBERS.get(kind.__name__, ()))
    spellings = {_in_snake_case(name): name for name in names}
    return readers, {snake: name for snake, name in spellings.items() if snake != name}


def _in_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _member_reader(declared_type: Any) -> Reader:
    """Return the function that reads members declared as *declared_type*."""
    if get_origin(declared_type) in (Union, UnionType):
        kinds = set(get_args(declared_type)) - {type(None), UnsetType}
        return _member_reader(kinds.pop())
    if get_origin(declared_type) is list:
        return _list_reader(_member_reader(get_args(declared_type)[0]))
    if isinstance(declared_type, type) and issubclass(declared_type, Data):
        return _struct_reader(declared_type)
    return _READERS[get_origin(declared_type) or declared_type]


def _list_reader(read_item: Reader) -> Reader:
    """Return the function that reads an array whose items are read by *read_item*."""

    def read(value: Any) -> list[Any]:
        if not is_array(value) or len(value) > MAX_ITEMS:
            raise ValueError(f"must be an array of at most {MAX_ITEMS} items")
        items: list[Any] = []
        for index, item in enumerate(value):
            try:
                items.append(read_item(item))
            except ValueError as error:
                # in a list of strings, the wrong item is easy to find without an index
                raise _with_path("" if read_item is _read_text else f"[{index}]", error) from None
        return items

    return read


def _type_reader(kind: type, problem: str) -> Reader:
    """Return a reader of values of one type, with the error *problem* for other values."""

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(problem)
        return value

    return read


def _choice_reader(values: dict[str, Any], problem: str) -> Reader:
    """Return a reader that looks up texts in *values*, with the error *problem* for others."""

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise ValueError(problem)
        return values[value]

    return read


_read_text = _type_reader(str, "must be a string")


def _read_whole_number(value: Any) -> int:
    """Return a whole number from 0 to 2**31 - 1; ProtoJSON allows a float, such as 2.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError("must be a whole number from 0 to 2147483647")
    return value


def _read_base64(value: Any) -> Base64:
    """Return base64 in the standard alphabet, padded.

    ProtoJSON accepts the URL-safe alphabet too, and needs no padding.
    """
    text = _read_text(value)
    if "-" in text or "_" in text:
        text = text.replace("-", "+").replace("_", "/")
    text += "=" * (-len(text) % 4)
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be base64") from None
    return Base64(text)


def _read_timestamp(value: Any) -> Timestamp:
    try:
        time = datetime.fromisoformat(_read_text(value))
        if time.tzinfo is None:
            raise ValueError
        digits = "milliseconds" if time.microsecond and not time.microsecond % 1000 else "auto"
        return Timestamp(time.astimezone(UTC).isoformat(timespec=digits).replace("+00:00", "Z"))
    except (OverflowError, ValueError):
        raise ValueError("must be an ISO 8601 time with its offset from UTC") from None


def _read_object(value: Any) -> Json:
    if not is_object(value):
        raise ValueError("must be an object")
    narrowed: Json = narrow(value)
    return narrowed


_READERS: dict[Any, Reader] = {
    str: _read_text,
    bool: _type_reader(bool, "must be true or false"),
    int: _read_whole_number,
    Base64: _read_base64,
    Timestamp: _read_timestamp,
    TaskState: _choice_reader(STATES, "must be a task state"),
    Role: _choice_reader(ROLES, "must be ROLE_USER, or user in 0.3"),
    Any: narrow,
    dict: _read_object,
}


def _upgrade_part(value: Json) -> Json:
    """Unwrap the file and the data of a part of 0.3, and check that the part has one content."""
    if is_object(file := value.get("file")):
        value = {**value, **_with_json_names(FILE_SPELLINGS, file)}
    contents = present = CONTENTS.keys() & value
    if None in map(value.get, present):  # only `data` may be null, if there is no other content
        contents = {name for name in present if value[name] is not None} or present & {"data"}
    kind = value.get("kind", value.get("type"))
    if len(contents) != 1 or kind not in (None, *map(CONTENTS.get, contents)):
        raise ValueError("must be one text, one piece of data, or one file")
    metadata = value.get("metadata")
    if is_object(metadata) and metadata.get("data_part_compat") is True:
        value = _without_wrapper(value, metadata)
    if present == contents:
        return value
    return {name: item for name, item in value.items() if name in contents or name not in CONTENTS}


def _without_wrapper(value: Json, metadata: Json) -> Json:
    """Return a part with its data unwrapped: for 0.3, the SDK wraps data that is not an object."""
    if not is_object(data := value.get("data")):
        return value
    other_metadata = {name: item for name, item in metadata.items() if name != "data_part_compat"}
    return {**value, "data": data.get("value"), "metadata": other_metadata or None}


def _upgrade_send_configuration(value: Json) -> Json:
    """Convert the `blocking` of 0.3 to `returnImmediately`."""
    blocking = value.get("blocking")
    if blocking is None:
        return value
    if not isinstance(blocking, bool):
        raise _Problem("must be true or false", ".blocking")
    return _completed(value, {"returnImmediately": not blocking})


def _upgrade_send(value: Json) -> Json:
    """Move `contextId` and `taskId`, which the SRS puts next to the message, into the message."""
    message = value.get("message")
    if not is_object(message):
        raise _Problem("must be an object", ".message")
    if not (value.get("contextId") or value.get("taskId")):
        return value
    ids = {name: value[name] for name in ("contextId", "taskId") if value.get(name)}
    return {**value, "message": _completed(message, ids)}


def _upgrade_push_config(value: Json) -> Json:
    """Unwrap the `pushNotificationConfig` object of 0.3, if there is one."""
    nested = value.get("pushNotificationConfig")
    return {**value, **nested, "taskId": value.get("taskId")} if is_object(nested) else value


def _upgrade_authentication(value: Json) -> Json:
    """Join the `schemes` of 0.3 with commas into the one `scheme` of 1.0, unless it is given."""
    if value.get("scheme") is not None:
        return value
    schemes = value.get("schemes")
    if schemes is not None and not isinstance(schemes, str):
        if not is_array(schemes) or not all(isinstance(s, str) and "," not in s for s in schemes):
            raise _Problem("must be an array of HTTP authentication schemes", ".schemes")
        schemes = ",".join(schemes)
    return {**value, "scheme": schemes}


def _upgrade_push_config_ids(value: Json) -> Json:
    """Convert the ids of a request about push configs to 1.0; in 0.3, `id` is the task id."""
    config = {"id": value.get("pushNotificationConfigId")}
    if value.get("taskId") is None:
        return {"taskId": value.get("id"), **config}
    return _completed(value, config)


def _completed(value: Json, defaults: Json) -> Json:
    """Return an object with *defaults* for its members that are missing or null."""
    return {
        **value,
        **{name: default for name, default in defaults.items() if value.get(name) is None},
    }


_UPGRADES: dict[type[Data], Callable[[Json], Json]] = {
    AuthenticationInfo: _upgrade_authentication,
    DeleteTaskPushNotificationConfigRequest: _upgrade_push_config_ids,
    GetTaskPushNotificationConfigRequest: _upgrade_push_config_ids,
    ListTaskPushNotificationConfigsRequest: _upgrade_push_config_ids,
    Part: _upgrade_part,
    TaskPushNotificationConfig: _upgrade_push_config,
    SendMessageConfiguration: _upgrade_send_configuration,
    SendMessageRequest: _upgrade_send,
}
"""Functions that convert objects of A2A 0.3 and of the SRS to the members of A2A 1.0, by type."""
