"""A program that checks JSON with a schema or with patterns, and is killed if that takes too long.

It reads a request: `data` and a `schema`, or `data`, `patterns` and `has_json`. It writes the
violations of a schema. For patterns it writes none: it only shows whether matching ends in time.
To start fast, the program imports none of our modules, and only the library that the check needs.
"""

import json
import re
import signal
import sys
from contextlib import suppress
from itertools import islice
from typing import Any

MAX_CPU_SECONDS = 0.1
"""Seconds of CPU time that the check may take."""
MAX_VIOLATIONS = 100


def main() -> None:
    """Read one request, and write its violations."""
    request = json.load(sys.stdin)
    violations: list[dict[str, str]] = []
    if "schema" in request:
        violations = validate(request["schema"], request["data"])
    else:
        match(request["patterns"], request["data"], has_json=request["has_json"])
    json.dump(violations, sys.stdout)


def validate(schema: Any, data: Any) -> list[dict[str, str]]:
    """Return the violations that Python's jsonschema finds."""
    from jsonschema import Draft202012Validator

    _start_timer()
    validator: Any = Draft202012Validator(schema)
    errors = validator.iter_errors(data)
    violations = [_violation(error) for error in islice(errors, MAX_VIOLATIONS)]
    for _ in errors:  # check the rest too: its violations are left out, but its time counts
        continue
    return violations


def match(patterns: list[Any], data: Any, *, has_json: bool) -> None:
    """Match each pattern with every text and every name in *data*, and ignore the results.

    A match that takes long in pydantic takes as long here.

    Args:
        patterns: The patterns, with flags and options.
        data: The value.
        has_json: Whether texts may be JSON; then the texts inside that JSON are matched too. There
            is no limit for JSON in JSON: each level doubles the backslashes, so it can't be deep.
    """
    from pydantic_core import SchemaValidator

    validators = [SchemaValidator(_text_schema(**pattern)) for pattern in patterns]
    _start_timer()
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            pending += value
        else:
            for validator in validators:
                validator.isinstance_python(value)
            if has_json and isinstance(value, str):
                with suppress(ValueError, RecursionError):
                    # pairs keep repeated names, whose values pydantic validates too
                    pending.append(json.loads(value, object_pairs_hook=list))


def _text_schema(pattern: str, flags: int, options: dict[str, Any]) -> Any:
    return {"type": "str", "pattern": re.compile(pattern, flags), **options}


def _start_timer() -> None:
    if hasattr(signal, "setitimer"):  # otherwise the parent's timeout ends this process
        # without a handler the signal ends the process at once, even inside `re`
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)


def _violation(error: Any) -> dict[str, str]:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
    keyword = str(error.validator or "type")
    path = "".join(f"/{step}" for step in steps)
    return {"path": path, "keyword": keyword, "message": f"Invalid value ({keyword})"}


if __name__ == "__main__":
    main()
