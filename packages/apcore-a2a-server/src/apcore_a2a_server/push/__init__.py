"""Webhooks that arrive: signed, retried, in order, and never into the inner network."""

from .guard import RefusedError
from .settings import PushSettings

__all__ = ["PushSettings", "RefusedError"]
