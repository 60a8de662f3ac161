"""Cursors of pages: the number of the last task on the page, as text."""

from a2a.utils.errors import InvalidParamsError


def number_of(cursor: str) -> int:
    """The number in a cursor that a client has sent.

    Raises:
        InvalidParamsError: It is none of ours.
    """
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidParamsError("Invalid page cursor")
    return int(cursor)
