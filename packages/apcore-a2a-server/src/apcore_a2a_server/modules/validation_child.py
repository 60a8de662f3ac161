"""A program that validates JSON with Python's jsonschema, and is killed when that takes long.

It reads `{"schema": …, "data": …}` and writes the violations. It imports nothing of ours, so that
it starts fast.
"""

import json
import signal
import sys
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator

SECONDS = 0.1
"""CPU time that the check may take."""
MAX_VIOLATIONS = 100


def main() -> None:
    """Answer one question."""
    question = json.load(sys.stdin)
    if hasattr(signal, "setitimer"):  # otherwise the parent's timeout ends this process
        # without a handler the signal ends the process at once, even inside `re`
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
    validator: Any = Draft202012Validator(question["schema"])
    errors = validator.iter_errors(question["data"])
    violations = [_violation(error) for error in islice(errors, MAX_VIOLATIONS)]
    for _ in errors:  # a value behind the violations may be the one that takes long
        continue
    json.dump(violations, sys.stdout)


def _violation(error: Any) -> dict[str, str]:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
    keyword = str(error.validator or "type")
    path = "".join(f"/{step}" for step in steps)
    return {"path": path, "keyword": keyword, "message": f"Invalid value ({keyword})"}


if __name__ == "__main__":
    main()
