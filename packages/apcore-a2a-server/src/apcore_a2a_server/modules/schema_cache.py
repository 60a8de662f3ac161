"""Cache for the JSON Schemas of a module's models.

apcore generates the JSON Schema of a model three times per call, which takes most of the time of
a small call. In each module *instance*, stand-ins replace the model classes. They cache the schemas
and behave like the classes, except that they report fewer errors in large values. The classes
themselves are not changed.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

from apcore.errors import SchemaValidationError
from apcore_a2a_core.values import is_large
from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator

from .redaction import SchemaStandIn
from .stepwise import stepwise_validator

MAX_ERRORS = 1000
"""Maximum number of errors that apcore may describe; describing that many takes some 20 ms."""

LARGE_TEXT = 8 * 1024
"""Length in characters above which a JSON text is validated stepwise."""

VALUE_NOUNS = {"input_schema": "Input", "output_schema": "Output"}
"""The attributes of a module that hold schemas, and the nouns for their values."""


class CachedSchema(SchemaStandIn):
    """Stand-in for a pydantic model class, with a cached JSON Schema.

    Args:
        model: The model.
        kind: The noun for the model's values in errors: "Input" or "Output".
    """

    is_slow = False
    """Whether validation must not run on the event loop."""

    def __init__(self, model: type[Any], kind: str = "Input") -> None:
        self._model = model
        self._kind = kind
        self._schema: dict[str, Any] = {}
        # apcore reads this at each call; if it were not set here, each read would run `__getattr__`
        self.__apcore_source_schema__ = getattr(model, "__apcore_source_schema__", None)

    def json_schema(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the model's JSON Schema, from the cache if there are no options."""
        if args or options:
            return dict(self._model.model_json_schema(*args, **options))
        if not self._schema:
            self._schema = self._model.model_json_schema()
        return self._schema

    def model_validate(self, data: Any, **options: Any) -> Any:
        """Validate *data* as the model does; in large data, stop at a list's first invalid item."""
        validate = self._model.model_validate
        if (self.is_slow or is_large(data)) and self._stepwise_validator is not None:
            validate = self._stepwise_validator.validate_python
        return self._validate(validate, data, options)

    def model_validate_json(self, data: str, **options: Any) -> Any:
        """Validate JSON as the model does; in long texts, stop at a list's first invalid item."""
        validate = self._model.model_validate_json
        if (self.is_slow or len(data) > LARGE_TEXT) and self._stepwise_validator is not None:
            validate = self._stepwise_validator.validate_json
        return self._validate(validate, data, options)

    @cached_property
    def _stepwise_validator(self) -> SchemaValidator | None:
        """The validator for large values; None if the model does not validate as pydantic does."""
        names, model = ("model_validate", "model_validate_json"), self._model
        class_members = [vars(base) for base in model.__mro__ if base is not BaseModel]
        is_custom = any(name in members for members in class_members for name in names)
        if not issubclass(model, BaseModel) or is_custom:
            return None
        return stepwise_validator(model)

    def _validate(self, validate: Callable[..., Any], data: Any, options: dict[str, Any]) -> Any:
        """Call *validate*, but keep apcore from describing more than `MAX_ERRORS` errors.

        Raises:
            SchemaValidationError: There are more errors; describing them could take seconds.
        """
        try:
            return validate(data, **options)
        except ValidationError as error:
            if error.error_count() <= MAX_ERRORS:
                raise
            message = f"Has {error.error_count()} errors"
            problem = {"path": "", "keyword": "type", "message": message}
            raise SchemaValidationError(f"{self._kind} validation failed", [problem]) from None

    def __reduce__(self) -> Any:
        """Pickle the model and the kind, for modules that run in another process."""
        return type(self), (self._model, self._kind)

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
    for name, kind in VALUE_NOUNS.items():
        model = getattr(module, name, None)
        if isinstance(model, type) and hasattr(model, "model_json_schema"):
            with suppress(AttributeError):  # the module has slots or a property: no cache for it
                setattr(module, name, CachedSchema(model, kind))
