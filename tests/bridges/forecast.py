"""A module that the frameworks of the tests get as a tool."""

from collections.abc import Callable
from typing import Any, ClassVar

from apcore import Context, Identity, Registry
from apcore_a2a_remote import tools


class Forecast:
    """Returns its inputs and the caller's id."""

    description = "Tells the weather."
    input_schema: ClassVar = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    }
    output_schema = None

    def execute(self, inputs: Any, context: Any) -> Any:
        return {**inputs, "by": context.identity and context.identity.id}


def forecast_tool(convert: Callable[..., Any]) -> Any:
    """Return the module as a tool of a framework; Ada calls it."""
    registry = Registry()
    registry.register("weather.forecast", Forecast())
    context: Context[Any] = Context.create(identity=Identity("ada"))
    tool = convert(tools(registry), "weather__forecast", context)
    assert (tool.name, tool.description) == ("weather__forecast", "Tells the weather.")
    return tool
