"""Agents of other frameworks as apcore modules."""

import apcore  # noqa: F401
import apcore_a2a_core  # noqa: F401
