"""Webhook delivery: signed, retried, in order, and only to allowed addresses."""

from .settings import PushSettings

__all__ = ["PushSettings"]
