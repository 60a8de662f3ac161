"""Page tokens: sealed positions in a list of tasks.

A store numbers the tasks of all owners in one sequence, so a bare number would tell an owner how
many tasks others have.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from a2a.utils.errors import InvalidParamsError

from .queries import Query

KEY_SIZE = 32  # bytes
TAG_SIZE, POSITION_SIZE = 16, 8  # bytes


class PageTokens:
    """Tokens for positions in a list; clients can neither read nor forge them.

    A token consists of an authentication tag and of a position that is masked with a value derived
    from the tag. It is valid for one owner or owner prefix and one order, at every replica with the
    same key.

    Args:
        key: The secret key, which the store keeps beside its tasks.

    Example:
        ```python
        from apcore_a2a_server.store import Query
        from apcore_a2a_server.store.page_tokens import PageTokens

        tokens = PageTokens(b"k" * 32)
        token = tokens.seal(Query("ada"), 17)
        print(len(token), tokens.open(Query("ada", cursor=token)))
        #> 32 17
        ```
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, query: Query, position: int) -> str:
        """Return the token of a position in the list of *query*."""
        tag = self._tag(query, position)
        masked = position ^ self._mask(tag)
        return urlsafe_b64encode(tag + masked.to_bytes(POSITION_SIZE)).decode()

    def open(self, query: Query) -> int | None:
        """Return the position in the token of *query*; None if it has no token.

        Raises:
            InvalidParamsError: The token is not from this store, or is for another owner or order.
        """
        if query.cursor is None:
            return None
        try:
            sealed = urlsafe_b64decode(query.cursor)
        except ValueError:
            sealed = b""
        tag, masked = sealed[:TAG_SIZE], sealed[TAG_SIZE:]
        position = int.from_bytes(masked) ^ self._mask(tag)
        is_complete = len(masked) == POSITION_SIZE
        if not is_complete or not hmac.compare_digest(tag, self._tag(query, position)):
            raise InvalidParamsError("Invalid page cursor")
        return position

    def _tag(self, query: Query, position: int) -> bytes:
        owner = f"\0{query.owner_prefix}" if query.owner is None else query.owner
        text = f"tag\0{query.order}\0{position}\0{owner}"
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")[:TAG_SIZE]

    def _mask(self, tag: bytes) -> int:
        return int.from_bytes(hmac.digest(self._key, b"mask\0" + tag, "sha256")[:POSITION_SIZE])
