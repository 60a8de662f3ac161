"""Redaction of inputs and outputs for logs.

apcore redacts three times per call, and each time indexes the JSON Schema and matches every name
with every sensitive key. This takes a quarter of the time of a small call. `Redaction` needs no
index, and caches which names are sensitive. It calls apcore's own function if the schema has
`x-sensitive`, if the rules have patterns for values, or if a value is not JSON.
"""

from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any

from apcore.utils.redaction import redact_sensitive
from apcore_a2a_core.values import is_array, is_object

MAX_NAME = 64
"""Maximum length of a cached name in characters: clients could fill the cache with long names."""
ATOMS = frozenset({str, int, float, bool, bytes})
"""Types whose values need not be copied."""

skips_redaction: ContextVar[bool] = ContextVar("apcore_a2a_skips_redaction", default=False)
"""Whether apcore's steps must not redact, since `Redaction` redacts in their place."""


class SchemaStandIn:
    """Base of stand-ins for schemas of modules."""

    is_slow = False
    """Whether validation must not run on the event loop."""

    def json_schema(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON Schema."""
        raise NotImplementedError

    @property
    def model_json_schema(self) -> Any:
        """The method with which apcore gets the JSON Schema; without it, apcore does not redact."""
        return None if skips_redaction.get() else self.json_schema

    @cached_property
    def has_marks(self) -> bool:
        """Whether any part of the JSON Schema is marked as sensitive."""
        return _has_marks(self.json_schema())


class Redaction:
    """A function that redacts values as apcore does with the same rules.

    Args:
        rules: A `RedactionConfig` of apcore.

    Example:
        ```python
        from apcore.observability.context_logger import RedactionConfig
        from apcore_a2a_server.modules.redaction import Redaction
        from apcore_a2a_server.modules.validation import LinearSchema

        redact = Redaction(RedactionConfig.default())
        print(redact({"user": "ada", "password": "x"}, LinearSchema({"type": "object"})))
        #> {'user': 'ada', 'password': '***REDACTED***'}
        ```
    """

    def __init__(self, rules: Any) -> None:
        self._rules: dict[str, Any] = {
            "sensitive_keys": rules.sensitive_keys,
            "regex_patterns": rules.compiled_regex_patterns,
            "replacement": rules.replacement,
        }
        self._has_patterns = bool(rules.compiled_regex_patterns)
        self._is_sensitive_cached = lru_cache(4096)(self._is_sensitive)

    def __call__(self, data: Any, schema: SchemaStandIn) -> Any:
        """Return a copy of *data*, which *schema* describes, with sensitive values replaced."""
        if not self._has_patterns and not schema.has_marks:
            try:
                return self._redact_object(data)
            except TypeError:  # a type of value that only apcore's function can copy
                pass
        return redact_sensitive(data, schema.json_schema(), **self._rules)

    def _is_sensitive(self, name: str) -> bool:
        value = f"{self._rules['replacement']}x"  # differs even from an empty replacement
        return bool(redact_sensitive({name: value}, {}, **self._rules)[name] != value)

    def _redact_object(self, data: Any) -> dict[str, Any]:
        if data.__class__ is not dict:
            raise TypeError
        copy: dict[str, Any] = {}
        is_sensitive = self._is_sensitive_cached
        for name, value in data.items():
            if value is None:
                copy[name] = None
            elif is_sensitive(name) if len(name) <= MAX_NAME else self._is_sensitive(name):
                copy[name] = self._rules["replacement"]
            else:
                copy[name] = value if value.__class__ in ATOMS else self._redact_value(value)
        return copy

    def _redact_value(self, value: Any) -> Any:
        kind = value.__class__
        if kind in ATOMS or value is None:
            return value
        if kind is list:
            return [self._redact_value(item) for item in value]
        return self._redact_object(value)


def _has_marks(schema: Any) -> bool:
    """Return whether any part of a schema is marked as sensitive."""
    if is_object(schema):
        return bool(schema.get("x-sensitive")) or any(map(_has_marks, schema.values()))
    return is_array(schema) and any(map(_has_marks, schema))
