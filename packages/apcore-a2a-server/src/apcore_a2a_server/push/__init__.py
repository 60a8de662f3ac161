"""Webhook delivery: signed, retried, in order, and only to addresses that the guard allows."""

from .settings import PushSettings

__all__ = ["PushSettings"]
