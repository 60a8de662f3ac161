"""The option `tenants`: the names of tenants and their skills."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from apcore_a2a_server.fields import LIST_TYPES, OptionError

EVERY_SKILL = "skills"
"""Value of the option that makes each skill a tenant, named by the id of the skill."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
"""Names that need no escape in a path (RFC 3986 §2.3)."""
MAX_NAME = 255
"""Maximum length of a name, in characters."""
RESERVED = ("agent", "apcore", "extendedAgentCard", "health", "metrics", "tasks", "v1")
"""First segments of the agent's own paths, which can't be names of tenants."""


def read_tenants(value: Any) -> Mapping[str, str] | str | None:
    """Return the value of the option `tenants`: a mapping, `skills`, or None.

    Args:
        value: The option's value; from the command line, a list of texts such as `NAME=SKILL`.

    Raises:
        OptionError: The value has another type, or an invalid name or skill.

    Example:
        ```python
        from apcore_a2a_server.app.tenant_names import read_tenants

        print(read_tenants(["billing=billing.ask", "tea=kitchen.tea"]))
        #> {'billing': 'billing.ask', 'tea': 'kitchen.tea'}
        ```
    """
    if not value:
        return None
    if value in (EVERY_SKILL, [EVERY_SKILL], (EVERY_SKILL,)):
        return EVERY_SKILL
    skills_by_name: dict[Any, Any]
    if isinstance(value, LIST_TYPES):
        skills_by_name = _parse_pairs(value)
    elif isinstance(value, Mapping):
        skills_by_name = {**value}
    else:
        raise OptionError("tenants", f"must map names to skills, or be {EVERY_SKILL!r}")
    for name, skill_id in skills_by_name.items():
        check_name(name)
        if not isinstance(skill_id, str) or not skill_id:
            raise OptionError("tenants", f"needs the id of a skill for {name!r}")
    return skills_by_name


def check_name(name: Any) -> None:
    """Check that a tenant's name can be part of a path, and is not too long.

    Raises:
        OptionError: The name is invalid.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        allowed = "ASCII letters, digits and . _ ~ - that start with a letter or digit"
        raise OptionError("tenants", f"needs names of {allowed}, not {name!r}")
    if len(name) > MAX_NAME:
        detail = f"{name[:20] + '…'!r} has {len(name)}; choose a shorter one"
        raise OptionError("tenants", f"needs names of at most {MAX_NAME} characters: {detail}")


def _parse_pairs(texts: Sequence[Any]) -> dict[str, str]:
    skills_by_name: dict[str, str] = {}
    for text in texts:
        name, separator, skill_id = str(text).partition("=")
        if text == EVERY_SKILL:
            problem = f"takes {EVERY_SKILL!r} alone, for every skill, or NAME=SKILL, not both"
            raise OptionError("tenants", problem)
        if not separator:
            raise OptionError("tenants", f"takes NAME=SKILL, or {EVERY_SKILL!r}, not {text!r}")
        if name in skills_by_name:
            raise OptionError("tenants", f"has {name!r} twice")
        skills_by_name[name] = skill_id
    return skills_by_name
