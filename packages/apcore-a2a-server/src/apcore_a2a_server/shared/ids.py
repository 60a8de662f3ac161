"""Identifiers and times, as the protocol wants them."""

from os import urandom
from time import time_ns

from google.protobuf.timestamp_pb2 import Timestamp


def new_id() -> str:
    """A fresh random UUID version 4 (RFC 9562 §5.4), as text.

    Example:
        ```python
        from apcore_a2a_server.shared.ids import new_id

        print(len(new_id()), new_id()[14])
        #> 36 4
        ```
    """
    text = urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def now() -> Timestamp:
    """The current time, cut to milliseconds (A2A 1.0 §5.6.1).

    Example:
        ```python
        from apcore_a2a_server.shared.ids import now

        print(now().nanos % 1_000_000)
        #> 0
        ```
    """
    seconds, nanos = divmod(time_ns(), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos - nanos % 1_000_000)
