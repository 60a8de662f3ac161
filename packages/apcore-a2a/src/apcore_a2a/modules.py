"""What module authors use of `apcore_a2a_modules`, under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_modules import Conversation, InputRequiredError
except ModuleNotFoundError as error:
    raise missing(error, "modules", "apcore_a2a.modules") from None

__all__ = ["Conversation", "InputRequiredError"]
