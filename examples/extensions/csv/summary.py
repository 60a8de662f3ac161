"""`csv.summary`: describe the columns of a CSV table."""

import base64
import csv
import io
import re
from statistics import fmean
from typing import Any, Literal

from apcore import Context, InvalidInputError, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_CHARACTERS = 1_000_000

# Numbers have no exponent and are below 10^15: every JSON reader keeps such integers exactly.
# Digits with leading zeros count as a code, not as a number: 00123 stays text.
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(\.[0-9]+)?")


class SummaryInput(BaseModel):
    """CSV table, either as `text` or as an attached file."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(
        default=None,
        description="The table itself; its first row has the column names.",
        max_length=MAX_CHARACTERS,
    )
    bytes: str | None = Field(
        default=None,
        description="The table as a file: UTF-8, base64 encoded. Use this or `text`.",
        max_length=MAX_CHARACTERS * 2,
    )
    delimiter: Literal[",", ";", "\t", "|"] = Field(
        default=",", description="The character that separates the cells of a row."
    )
    name: str | None = Field(default=None, description="The name of the file.")
    mimeType: str | None = Field(
        default=None,
        description="The media type of the file.",
        pattern=r"^text/(csv|plain)(; ?charset=[uU][tT][fF]-8)?$",
    )
    uri: str | None = Field(
        default=None, description="The URI of the file, which is never fetched: send the bytes."
    )

    @model_validator(mode="after")
    def _one_table(self) -> "SummaryInput":
        if (self.text is None) == (self.bytes is None):
            raise ValueError("give the table as either text or bytes")
        self.table()  # raises ValueError for invalid bytes
        return self

    def table(self) -> str:
        """Return the table as text, without a byte order mark."""
        text = self.text or base64.b64decode(self.bytes or "", validate=True).decode()
        return text.removeprefix("\ufeff")


class Column(BaseModel):
    """Type of a column, and statistics of its cells."""

    name: str = Field(description="The column's name, from the first row.")
    type: Literal["integer", "number", "text", "empty"] = Field(
        description="The narrowest type that fits every cell with a value."
    )
    count: int = Field(description="The number of cells with a value.")
    missing: int = Field(description="The number of blank cells.")
    min: int | float | str | None = Field(
        description="The smallest number, or the first text in code point order."
    )
    max: int | float | str | None = Field(
        description="The largest number, or the last text in code point order."
    )
    mean: float | None = Field(description="The mean value of a column of numbers.")


class SummaryOutput(BaseModel):
    """Summary of the table."""

    name: str | None = Field(description="The name of the file, if it had one.")
    rows: int = Field(description="The number of rows after the first, without empty lines.")
    columns: list[Column] = Field(description="The columns, in the order of the table.")


class Summary:
    """Summarize a CSV table."""

    name = "CSV summary"
    description = (
        "Summarize a CSV table: the number of rows and, for each column, its type, the numbers of "
        "filled and missing cells, the smallest and largest value, and the mean."
    )
    version = "1.0.0"
    tags = ["csv", "data", "statistics"]
    annotations = ModuleAnnotations(readonly=True, idempotent=True, open_world=False)
    examples = [
        ModuleExample(
            title="Ages, one of them unknown",
            inputs={"text": "name,age\nAda,36\nAlan,41\nGrace,\n"},
            output={
                "name": None,
                "rows": 3,
                "columns": [
                    {
                        "name": "name",
                        "type": "text",
                        "count": 3,
                        "missing": 0,
                        "min": "Ada",
                        "max": "Grace",
                        "mean": None,
                    },
                    {
                        "name": "age",
                        "type": "integer",
                        "count": 2,
                        "missing": 1,
                        "min": 36,
                        "max": 41,
                        "mean": 38.5,
                    },
                ],
            },
        )
    ]
    input_schema = SummaryInput
    output_schema = SummaryOutput

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Read the table and describe each of its columns."""
        arguments = SummaryInput.model_validate(inputs)
        header, rows = _read(arguments.table(), arguments.delimiter)
        cells = zip(*rows, strict=True) if rows else [()] * len(header)
        columns = [
            _describe_column(name, column) for name, column in zip(header, cells, strict=True)
        ]
        return {"name": arguments.name, "rows": len(rows), "columns": columns}


def _read(table: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    reader = csv.reader(io.StringIO(table, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    try:
        for row in filter(None, reader):
            rows.append([cell.strip() for cell in row])
            if len(row) != len(rows[0]):
                raise InvalidInputError(
                    f"Line {reader.line_num} has {len(row)} cells instead of {len(rows[0])}"
                )
    except csv.Error as error:
        raise InvalidInputError(f"Line {reader.line_num}: {error}") from error
    if not rows or len(set(rows[0])) < len(rows[0]) or "" in rows[0]:
        raise InvalidInputError("The first row must give each column a different name")
    return rows[0], rows[1:]


def _describe_column(name: str, cells: tuple[str, ...]) -> dict[str, Any]:
    filled = [cell for cell in cells if cell]
    numbers = [number for cell in filled if (number := _parse_number(cell)) is not None]
    is_numeric = len(numbers) == len(filled) > 0
    values: list[Any] = numbers if is_numeric else filled
    return {
        "name": name,
        "type": _type_of(values),
        "count": len(filled),
        "missing": len(cells) - len(filled),
        "min": min(values, default=None),
        "max": max(values, default=None),
        "mean": fmean(numbers) if is_numeric else None,
    }


def _parse_number(cell: str) -> int | float | None:
    if not (match := NUMBER.fullmatch(cell)):
        return None
    return float(cell) if match[1] else int(cell)


def _type_of(values: list[Any]) -> str:
    kinds = {type(value) for value in values}
    if not kinds:
        return "empty"
    if str in kinds:
        return "text"
    return "number" if float in kinds else "integer"
