"""Cache for the JSON Schemas of a module's models.

apcore asks a model for its JSON Schema three times per call, which is most of what a
small call costs. Each module *instance* gets a stand-in for its model class that answers
from memory and is the class in every other respect; the class itself is left alone.
"""

from typing import Any


class CachedSchema:
    """Stands in for a pydantic model class, with a cached `model_json_schema`."""

    def __init__(self, model: type[Any]) -> None:
        self._model = model
        self._schema: dict[str, Any] = {}

    def model_json_schema(self, *args: Any, **options: Any) -> dict[str, Any]:
        """The model's JSON Schema; cached when asked for without options."""
        if args or options:
            return dict(self._model.model_json_schema(*args, **options))
        if not self._schema:
            self._schema = self._model.model_json_schema()
        return self._schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **values: Any) -> Any:
        return self._model(*args, **values)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._model)

    def __repr__(self) -> str:
        return repr(self._model)


def cache_schemas(module: Any) -> None:
    """Have a module instance make the JSON Schemas of its models once."""
    for name in ("input_schema", "output_schema"):
        model = getattr(module, name, None)
        if isinstance(model, type) and hasattr(model, "model_json_schema"):
            try:
                setattr(module, name, CachedSchema(model))
            except AttributeError:  # slots, or a property: this module does without
                continue
