"""The keys that sign Agent Cards (A2A 1.0 §8.4), and the page with public keys."""

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from apcore_a2a_core.protocols import CardSigner
from apcore_a2a_core.values import dump_json
from starlette.requests import Request
from starlette.responses import Response

from apcore_a2a_server.fields import LIST_TYPES, OptionError

from .companions import Companions
from .options import Settings

ENTRY_POINT_GROUP, ENTRY_POINT = "apcore_a2a.cards", "signer"
"""The entry point: a function that makes a signer from keys and the URL of their public halves."""
PATH = "/.well-known/jwks.json"
"""Path of the public keys, below the agent's URL."""


def card_signer(settings: Settings) -> CardSigner | None:
    """Return the signer for the option `card_key`; None if cards are not signed.

    Raises:
        ImportError: No signer is installed.
        OptionError: A key is not usable.
    """
    keys_or_signer = settings.card_key
    if not keys_or_signer or settings.url is None:
        return None
    if _is_signer(keys_or_signer):
        signer: CardSigner = keys_or_signer
        return signer
    installed = [*entry_points(group=ENTRY_POINT_GROUP, name=ENTRY_POINT)]
    if not installed:
        raise ImportError("card_key needs the auth part: pip install 'apcore-a2a[auth]'")
    try:
        key_list = [*keys_or_signer] if isinstance(keys_or_signer, LIST_TYPES) else [keys_or_signer]
        key_signer: CardSigner = installed[0].load()(key_list, settings.url.rstrip("/") + PATH)
    except ValueError as error:
        raise OptionError("card_key", f"is not usable: {error}") from None
    return key_signer


def _is_signer(value: Any) -> bool:
    return hasattr(value, "sign") and hasattr(value, "jwks")


class KeySetPage:
    """The page with the public keys of this agent (RFC 7517 §5).

    Args:
        signer: Signs the cards; None if they are not signed.
        companions: The companions, whose keys are published too, such as keys that verify the
            tokens sent to remote agents.
    """

    def __init__(self, signer: CardSigner | None, companions: Companions) -> None:
        self._card_keys: Sequence[Mapping[str, Any]] = signer.jwks()["keys"] if signer else ()
        self._companions = companions

    async def show(self, request: Request) -> Response:
        """Respond with the key set; a key with several purposes is listed once."""
        keys = {dump_json(key): key for key in (*self._card_keys, *self._companions.public_keys())}
        body = dump_json({"keys": [*keys.values()]})
        headers = {"cache-control": "max-age=300"}
        return Response(body, media_type="application/jwk-set+json", headers=headers)
