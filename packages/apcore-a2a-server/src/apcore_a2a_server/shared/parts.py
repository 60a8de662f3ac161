"""Messages and parts in the form in which modules get them: the JSON of A2A 1.0."""

from collections.abc import Mapping
from typing import Any

from a2a import types as a2a
from apcore_a2a_core import narrow
from apcore_a2a_dialects import V1, Json, decode

JSON = V1()


def as_json(part: Mapping[str, Any] | a2a.Part) -> Json:
    """A part that came in JSON of either dialect, or as the SDK's; numbers stay exact.

    Example:
        ```python
        from apcore_a2a_server.shared.parts import as_json

        print(as_json({"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt"}}))
        #> {'raw': 'aGk=', 'filename': 'a.txt'}
        ```
    """
    if isinstance(part, a2a.Part):
        return JSON.message(part)
    found = JSON.message(decode(a2a.Part, part))
    metadata: Json = part.get("metadata") or {}
    if "data" in found and metadata.get("data_part_compat") is not True:
        found["data"] = narrow(part["data"])
    return found
