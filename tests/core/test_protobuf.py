"""Protobuf messages of clients: measured, then parsed."""

import pytest
from a2a.types import GetTaskRequest, SendMessageRequest
from a2a.utils.errors import InvalidRequestError
from apcore_a2a_core.dialects import BodySizeError, parse_message
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st


def request_with(data: object) -> SendMessageRequest:
    return ParseDict({"message": {"parts": [{"data": data}]}}, SendMessageRequest())


FIELDS = st.lists(st.sampled_from([b"\x0a", b"\x12", b"\x2a", b"\x22", b"\x32", b"\x02", b"\x80"]))


@given(st.one_of(st.binary(max_size=200), FIELDS.map(b"".join)))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    try:
        message: Message = parse_message(SendMessageRequest, body, max_values=3)
    except (BodySizeError, InvalidRequestError):
        return
    assert message == SendMessageRequest.FromString(body)


@pytest.mark.parametrize(
    "data",
    [
        [1.5] * 900,
        ["a text that is longer than a number"] * 900,
        {"text": "\n*" * 100_000},
        {f"key {number}": number for number in range(300)},
        [[["x"]]] * 200,
    ],
    ids=["numbers", "texts", "long text", "members", "nested"],
)
def test_a_message_within_the_limit_is_parsed(data: object) -> None:
    request = request_with(data)
    assert parse_message(SendMessageRequest, request.SerializeToString(), 1000) == request


@pytest.mark.parametrize(
    "data",
    [[None] * 3000, [""] * 3000, [{}] * 3000, {f"{n}": None for n in range(3000)}, [[[]]] * 3000],
    ids=["nulls", "texts", "objects", "members", "nested"],
)
def test_a_message_beyond_the_limit_is_not_parsed(data: object) -> None:
    with pytest.raises(BodySizeError, match="more than 1000 values") as raised:
        parse_message(SendMessageRequest, request_with(data).SerializeToString(), 1000)
    assert raised.value.status == 413


def test_unknown_fields_are_ignored() -> None:
    assert parse_message(GetTaskRequest, b"\xfa\x7f\x01x" + b"\xf8\x7f\x05").id == ""
