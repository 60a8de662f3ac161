"""`units.convert`: convert a measure; ask for missing parts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from apcore import Context, InvalidInputError, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # the module also runs without A2A
    from apcore_a2a_core import Services

LENGTHS = {  # in meters
    "mm": 0.001,
    "cm": 0.01,
    "m": 1.0,
    "km": 1000.0,
    "in": 0.0254,
    "ft": 0.3048,
    "yd": 0.9144,
    "mi": 1609.344,
}
WEIGHTS = {"g": 1.0, "kg": 1000.0, "oz": 28.349523125, "lb": 453.59237}  # in grams
TABLES = {unit: table for table in (LENGTHS, WEIGHTS) for unit in table}
NUMBER, UNIT = r"[0-9]{1,12}(?:\.[0-9]{1,12})?", "|".join(TABLES)
REQUEST = re.compile(
    rf"(?!$)(?:(?P<amount>{NUMBER}) ?(?P<unit>{UNIT})\b)? ?(?:(?:in|to) )?(?P<target>{UNIT})?"
)


class ConvertInput(BaseModel):
    """Measure to convert, or a missing part of it."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        description="A measure, a unit to convert it to, or both: '5 km in mi'.", max_length=200
    )


class ConvertOutput(BaseModel):
    """Measure in the requested unit, with up to six significant digits."""

    text: str = Field(description="Both measures, as an equation.")
    amount: float = Field(description="The converted amount.")
    unit: str = Field(description="The unit of the amount.")


class Convert:
    """Convert a length or a weight."""

    name = "Convert units"
    description = (
        "Convert a length or a weight to another unit: '5 km in mi'. Missing parts are taken from "
        "earlier messages of the conversation, or asked for. After '5 km in mi', '3 km' is "
        "converted to miles, too, and 'ft' converts the last measure to feet."
    )
    version = "1.0.0"
    tags = ["units", "conversation"]
    annotations = ModuleAnnotations(readonly=True, idempotent=True, open_world=False)
    examples = [
        ModuleExample(
            title="A distance in miles",
            inputs={"text": "5 km in mi"},
            output={"text": "5 km = 3.10686 mi", "amount": 3.10686, "unit": "mi"},
        ),
        ModuleExample(
            title="A weight in grams",
            inputs={"text": "2.5 oz to g"},
            output={"text": "2.5 oz = 70.8738 g", "amount": 70.8738, "unit": "g"},
        ),
    ]
    input_schema = ConvertInput
    output_schema = ConvertOutput

    def execute(
        self, inputs: dict[str, Any], context: "Context[Services | None]"
    ) -> dict[str, Any]:
        """Convert the latest measure to the latest unit that suits it."""
        latest = _parse(ConvertInput.model_validate(inputs).text)
        matches = [*_earlier_matches(context.services), *latest]
        measures = [(match["amount"], match["unit"]) for match in matches if match["amount"]]
        if not latest or not measures:
            _ask(context.services, "What should be converted? For example: 5 km in mi")
        amount, unit = measures[-1]
        choices = [name for name in TABLES[unit] if name != unit]
        targets = [match["target"] for match in matches if match["target"] in choices]
        # also ask if the latest message names a unit that does not suit the measure
        if not targets or latest[0]["target"] not in (None, targets[-1]):
            _ask(context.services, f"{amount} {unit} in which unit?", choices)
        return _convert(amount, unit, targets[-1])


def _parse(text: str) -> list[re.Match[str]]:
    """Return a list with the match if *text* is a measure, a unit or both, else an empty list."""
    match = REQUEST.fullmatch(" ".join(text.lower().split()))
    return [match] if match else []


def _earlier_matches(services: "Services | None") -> Iterator[re.Match[str]]:
    """Yield the matches in earlier messages of the user, oldest first."""
    for message in services.history if services else ():
        if message["role"] == "ROLE_USER":
            for part in message["parts"]:
                inputs = part.get("data", part)  # an input is text or data
                if isinstance(inputs, dict) and isinstance(inputs.get("text"), str):
                    yield from _parse(inputs["text"])


def _ask(services: "Services | None", question: str, choices: list[str] | None = None) -> NoReturn:
    if services is None:  # called outside of A2A: there is no user to ask
        raise InvalidInputError(question)
    services.ask(question, field="text", choices=choices)


def _convert(amount: str, unit: str, target: str) -> dict[str, Any]:
    table = TABLES[unit]
    digits = f"{float(amount) * table[unit] / table[target]:.6g}"
    text = f"{amount} {unit} = {digits} {target}"
    return {"text": text, "amount": float(digits), "unit": target}
