"""Cache for the JSON Schemas of a module's models.

apcore generates the JSON Schema of a model three times per call, which takes most of the time of
a small call. Each module *instance* gets a stand-in for its model class that caches the schema and
behaves like the class otherwise; the class itself is not changed.
"""

from contextlib import suppress
from typing import Any


class CachedSchema:
    """Stand-in for a pydantic model class, with a cached `model_json_schema`."""

    def __init__(self, model: type[Any]) -> None:
        self._model = model
        self._schema: dict[str, Any] = {}

    def model_json_schema(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the model's JSON Schema, from the cache if there are no options."""
        if args or options:
            return dict(self._model.model_json_schema(*args, **options))
        if not self._schema:
            self._schema = self._model.model_json_schema()
        return self._schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Return an instance of the model."""
        return self._model(*args, **values)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._model)

    def __repr__(self) -> str:
        return repr(self._model)


def cache_schemas(module: Any) -> None:
    """Cache the JSON Schemas of a module instance's models."""
    for name in ("input_schema", "output_schema"):
        model = getattr(module, name, None)
        if isinstance(model, type) and hasattr(model, "model_json_schema"):
            with suppress(AttributeError):  # the module has slots or a property: no cache for it
                setattr(module, name, CachedSchema(model))
