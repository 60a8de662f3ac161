"""The bundled types of requests and responses match the definitions of the protocol."""

import json

from tools.wire_types import FILE, wire_types


def test_the_bundled_types_are_those_of_the_protocols_definitions() -> None:
    """If the definitions change, run `python tools/wire_types.py`."""
    assert json.loads(FILE.read_text()) == wire_types()


def test_the_types_have_the_methods_and_required_members_of_both_versions() -> None:
    types = wire_types()
    assert types["1.0"]["methods"]["SendStreamingMessage"] == [
        "SendMessageRequest",
        "StreamResponse",
    ]
    assert types["1.0"]["types"]["Part"]["?"] == ["text", "raw", "url", "data"]
    assert types["1.0"]["types"]["Task"]["status"] == "TaskStatus!"
    assert types["0.3"]["methods"]["message/send"] == ["MessageSendParams", "Task|Message"]
    assert types["0.3"]["types"]["Task"]["kind"] == "=task!"
    assert "contextId" in types["0.3"]["types"]["Task"]
