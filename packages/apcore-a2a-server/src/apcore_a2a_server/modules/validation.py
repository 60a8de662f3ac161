"""Validation of inputs and outputs in bounded time.

apcore checks values against a JSON Schema with the library jsonschema, which needs 2^n steps to
match n characters with a pattern such as `^(a+)+$`, and n^2 for `uniqueItems` with n objects.
Python's regular expressions hold the interpreter lock meanwhile, so the event loop and all other
threads wait. Therefore, `install_stand_ins` replaces schemas that have such keywords.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from apcore.errors import SchemaValidationError
from apcore_a2a_core import clean
from apcore_a2a_core.values import is_array, is_large, is_object
from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    ReferencingError,
    RegexOptions,
    ValidationError,
)
from pydantic_core import to_jsonable_python

from .core_schemas import depth_limit, is_deeper, python_patterns
from .redaction import SchemaStandIn
from .schema_cache import VALUE_NOUNS, CachedSchema
from .stepwise import OutOfTimeError, limited_time, stepwise_schema

logger = logging.getLogger("apcore_a2a.skills")

BACKTRACK_LIMIT = 10_000
"""Maximum number of steps to match a pattern with look-around or back-references, about 1 ms."""
MAX_VIOLATIONS = 100
"""Maximum number of violations in an error."""
CHILD_PROGRAM = Path(__file__).with_name("validation_child.py")
MAX_SECONDS = 1.0
"""Seconds of CPU time that pydantic may take, after another process has matched the patterns."""
CHILD_TIMEOUT = 5.0
"""Seconds, including the start of Python, after which the process of a check is killed."""

DICT_SCHEMA = "_DictSchemaAdapter"
"""Name of the class in which apcore wraps a schema that is a dict."""

Json = dict[str, Any]


class LinearSchema(SchemaStandIn):
    """Stand-in for a module's JSON Schema: jsonschema-rs checks values in linear time.

    It has the methods that apcore calls on a schema.

    Args:
        schema: The JSON Schema (2020-12).
        kind: The noun for the schema's values in errors: "Input" or "Output".

    Raises:
        ValueError, ReferencingError: jsonschema-rs does not take the schema.
    """

    def __init__(self, schema: Json, kind: str = "Input") -> None:
        self._schema = schema
        self._kind = kind
        options = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
        self._validator = validator_of(*stepwise_schema(schema), pattern_options=options)

    def __reduce__(self) -> Any:
        """Pickle the schema and the kind, for modules that run in another process."""
        return type(self), (self._schema, self._kind)

    def json_schema(self, *args: Any, **options: Any) -> Json:
        """Return the JSON Schema."""
        return self._schema

    def model_rebuild(self) -> None:
        """Do nothing; pydantic's models have this method."""

    def model_validate(self, data: Any, *, strict: bool | None = None) -> Any:
        """Return *data* if it matches the schema; the check never coerces, so it is strict.

        Raises:
            SchemaValidationError: The data does not match.
        """
        try:
            is_valid = self._validator.is_valid(data)
        except ValueError:  # an output with dates, bytes or other types that JSON does not have
            self._validate_as_json(data)
            return data
        if not is_valid:
            raise _refusal(self._kind, self._violations(data))
        return data

    def _validate_as_json(self, data: Any) -> None:
        """Validate an output as the JSON that clients will get."""
        # a value that can't be converted can't be sent either: a later error explains that
        with suppress(ValueError):
            data_as_json = to_jsonable_python(data, timedelta_mode="float", bytes_mode="base64")
            self.model_validate(data_as_json)

    def _violations(self, data: Any) -> Iterator[Json]:
        """Yield the violations; for a large value only the first, since all may take seconds."""
        if not is_large(data):
            yield from map(_violation, self._validator.iter_errors(data))
            return
        try:
            self._validator.validate(data)
        except ValidationError as error:
            yield _violation(error)


class SeparateSchema(SchemaStandIn):
    """Stand-in for a JSON Schema that jsonschema-rs does not take.

    Another process checks values with jsonschema, and is killed if that takes too long.
    """

    is_slow = True

    def __init__(self, schema: Json, kind: str = "Input") -> None:
        self._schema = schema
        self._kind = kind

    def json_schema(self, *args: Any, **options: Any) -> Json:
        """Return the JSON Schema."""
        return self._schema

    def model_rebuild(self) -> None:
        """Do nothing; pydantic's models have this method."""

    def model_validate(self, data: Any, *, strict: bool | None = None) -> Any:
        """Return *data* if it matches the schema.

        Raises:
            SchemaValidationError: The data does not match, or the check takes too long.
        """
        violations = check_in_other_process({"schema": self._schema}, data)
        if violations:
            raise _refusal(self._kind, violations)
        return data


class RehearsedSchema(CachedSchema):
    """Stand-in for a pydantic model that takes long to validate some small values.

    Another process first matches every text of a value with the model's patterns for Python's `re`.
    This process validates the value only if the other process ends in time. Values of recursive
    unions have a maximum depth.
    """

    def __init__(self, model: type[Any], kind: str = "Input") -> None:
        super().__init__(model, kind)
        self._patterns = python_patterns(model)
        self._max_depth = depth_limit(model)
        self.is_slow = bool(self._patterns["patterns"])

    def model_validate(self, data: Any, **options: Any) -> Any:
        """Validate *data* as the model does."""
        self._rehearse(data)
        return super().model_validate(data, **options)

    def model_validate_json(self, data: str, **options: Any) -> Any:
        """Validate JSON as the model does."""
        self._rehearse(json.loads(data))
        return super().model_validate_json(data, **options)

    def _validate(self, validate: Callable[..., Any], data: Any, options: dict[str, Any]) -> Any:
        if not self.is_slow:
            return super()._validate(validate, data, options)
        try:
            with limited_time(MAX_SECONDS):  # a union may match the same text again and again
                return super()._validate(validate, data, options)
        except OutOfTimeError:
            raise _refusal(self._kind, [TOO_LONG]) from None

    def _rehearse(self, data: Any) -> None:
        violations: list[Json] = []
        if self._max_depth is not None and is_deeper(data, self._max_depth):
            message = f"Is nested deeper than {self._max_depth}"
            violations = [{"path": "", "keyword": "type", "message": message}]
        elif self.is_slow:
            violations = check_in_other_process(self._patterns, data)
        if violations:
            raise _refusal(self._kind, violations)


TOO_LONG: Json = {"path": "", "keyword": "pattern", "message": "Takes too long to check"}


def check_in_other_process(check: Json, data: Any) -> list[Json]:
    """Return the violations that `validation_child` finds; `[TOO_LONG]` if the process fails.

    A process that takes too long is killed, which counts as a failure. The calling thread waits.

    Args:
        check: An object with a `schema` for Python's jsonschema, or the result of
            `python_patterns`.
        data: The value.
    """
    data_as_json = to_jsonable_python(data, bytes_mode="base64", fallback=str)
    request = json.dumps({**check, "data": data_as_json})
    command = [sys.executable, "-I", str(CHILD_PROGRAM)]
    try:
        child = subprocess.run(  # the command has our own file, and no text of a client
            command, input=request.encode(), capture_output=True, timeout=CHILD_TIMEOUT, check=True
        )
    except subprocess.SubprocessError:
        return [TOO_LONG]
    violations: list[Json] = json.loads(child.stdout)
    return violations


@lru_cache(maxsize=1024)
def needs_stand_in(schema_type: type) -> bool:
    """Return whether `install_stand_ins` may replace a schema with a stand-in.

    Args:
        schema_type: The schema itself if it is a model class; otherwise the schema's type.
    """
    if schema_type.__name__ == DICT_SCHEMA:
        return True
    is_slow = bool(python_patterns(schema_type)["patterns"]) or depth_limit(schema_type) is not None
    return is_slow or json_schema_of(schema_type) is not None


def install_stand_ins(skill_id: str, module: Any) -> None:
    """Replace those schemas of a module instance whose checks may take unbounded time.

    A warning is logged for each pattern that may backtrack. In schemas that jsonschema-rs does not
    take, every pattern may backtrack.
    """
    for name, kind in VALUE_NOUNS.items():
        stand_in = _stand_in(skill_id, getattr(module, name, None), kind)
        if stand_in is not None:
            with suppress(AttributeError):  # the module has slots or a property
                setattr(module, name, stand_in)


def _stand_in(skill_id: str, schema: Any, kind: str) -> Any:
    """Return the stand-in for a schema; None if it needs none."""
    patterns = python_patterns(schema)["patterns"]
    if patterns:
        _warn(skill_id, [pattern["pattern"] for pattern in patterns], SEPARATE)
    if patterns or depth_limit(schema) is not None:
        return RehearsedSchema(schema, kind)
    source = json_schema_of(schema)
    if source is None:
        return None
    try:
        stand_in = LinearSchema(source, kind)
    except (ValueError, ReferencingError):
        # without keywords of `SUPERLINEAR`, jsonschema is fast enough to run in this process
        if not any(keyword in SUPERLINEAR for keyword, _ in keywords_of(source)):
            return None
        _warn(skill_id, patterns_of(source), SEPARATE)
        return SeparateSchema(source, kind)
    _warn(skill_id, filter(_backtracks, patterns_of(source)), LIMITED)
    return stand_in


SUPERLINEAR = frozenset({"pattern", "patternProperties", "uniqueItems", "format"})
"""Keywords that apcore checks in exponential or quadratic time; `format` because of `email`."""
LIMITED = f"it gets {BACKTRACK_LIMIT} steps, and values that need more are refused"
SEPARATE = "a separate process matches it at each call, and values that take long are refused"


def _warn(skill_id: str, patterns: Iterable[str], consequence: str) -> None:
    for pattern in dict.fromkeys(patterns):
        logger.warning(
            "Skill %s: the pattern %s may backtrack: %s",
            clean(skill_id, 200),
            clean(pattern, 200),
            consequence,
            extra={"event": "pattern_backtracks"},
        )


def json_schema_of(schema: Any) -> Json | None:
    """Return the JSON Schema from which apcore has made a schema, if a stand-in may be needed.

    For a schema that is a dict, return the dict. For a model that apcore has generated from YAML,
    return its source if that has keywords of `SUPERLINEAR`. Otherwise, return None.
    """
    if type(schema).__name__ == DICT_SCHEMA:
        source = schema.model_json_schema()
        return source if is_object(source) else None
    source = getattr(schema, "__apcore_source_schema__", None)
    if is_object(source) and any(keyword in SUPERLINEAR for keyword, _ in keywords_of(source)):
        return source
    return None


def keywords_of(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a schema and of its subschemas, with their values.

    Names of properties and members of constants are yielded, too: callers get all keywords, but
    perhaps also other names.
    """
    if is_object(schema):
        yield from schema.items()
    values = schema.values() if is_object(schema) else schema if is_array(schema) else ()
    for value in values:
        yield from keywords_of(value)


def patterns_of(schema: Any) -> Iterator[str]:
    """Yield the patterns in a schema."""
    for keyword, value in keywords_of(schema):
        if keyword == "pattern" and isinstance(value, str):
            yield value
        elif keyword == "patternProperties" and is_object(value):
            yield from value


def _backtracks(pattern: str) -> bool:
    """Return whether a pattern needs backtracking because it has look-around or back-references."""
    try:
        validator_of({"pattern": pattern}, pattern_options=RegexOptions())
    except ValueError:
        return True
    return False


def validator_of(
    schema: Json,
    keywords: Mapping[str, Any] | None = None,
    *,
    pattern_options: FancyRegexOptions | RegexOptions,
) -> Draft202012Validator:
    """Return a validator that takes linear time, and whose errors do not contain the value."""
    return Draft202012Validator(
        schema,
        pattern_options=pattern_options,
        keywords={**(keywords or {})},
        validate_formats=False,
        retriever=_refuse_to_retrieve,
        mask="value",
    )


def _refuse_to_retrieve(uri: str) -> NoReturn:
    """Refuse to read a schema from elsewhere."""
    raise ValueError(f"{uri} is not part of the schema")


ALIASES = {"falseSchema": "type", "backtrackLimitExceeded": "pattern"}
"""Keywords to report for those errors of jsonschema-rs that are not named after a keyword."""


def _violation(error: ValidationError) -> Json:
    """Return a violation in the format of apcore's errors, without the rejected value."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path)
    keyword = ALIASES.get(error.kind.name, error.kind.name)
    if "dependentRequired" in error.schema_path:  # jsonschema-rs reports it as `required`
        keyword = "dependentRequired"
    path = "".join(f"/{step}" for step in steps)
    return {"path": path, "keyword": keyword, "message": f"Invalid value ({keyword})"}


def _refusal(kind: str, violations: Iterable[Json]) -> SchemaValidationError:
    errors = [*islice(violations, MAX_VIOLATIONS)]
    return SchemaValidationError(f"{kind} validation failed", errors=errors)
