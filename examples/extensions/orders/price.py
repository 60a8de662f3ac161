"""`orders.price`: calculate the price of an order, to the cent."""

from typing import Any, Literal

from apcore import Context, InvalidInputError, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field

PERCENT_OFF = {"none": 0, "member": 5, "bulk": 10, "staff": 25}
MIN_BULK = 100  # pieces


class Strict(BaseModel):
    """Model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Address(Strict):
    """Destination of the order."""

    city: str = Field(description="The city.", min_length=1, max_length=100)
    country: str = Field(description="ISO 3166 country code.", pattern=r"^[A-Z]{2}$")


class Customer(Strict):
    """Customer who places the order."""

    name: str = Field(description="The customer's name.", min_length=1, max_length=100)
    address: Address


class Line(Strict):
    """Line of an order."""

    sku: str = Field(description="The article number.", min_length=1, max_length=40)
    quantity: int = Field(description="The number of pieces.", ge=1, le=10_000)
    unit_cents: int = Field(description="The price of one piece, in cents.", ge=0, le=10_000_000)


class PriceInput(Strict):
    """Order to price."""

    customer: Customer
    lines: list[Line] = Field(description="The articles ordered.", min_length=1, max_length=500)
    discount: Literal["none", "member", "bulk", "staff"] = Field(
        default="none",
        description=f"The discount: member 5 %, bulk 10 % (from {MIN_BULK} pieces), staff 25 %.",
    )
    tax_percent: int = Field(default=20, description="Tax on the discounted goods.", ge=0, le=30)


class PricedLine(BaseModel):
    """Price of one line of the order."""

    sku: str = Field(description="The article number.")
    total_cents: int = Field(description="The price of all pieces of the line, in cents.")


class PriceOutput(BaseModel):
    """Bill. All amounts are whole cents; half a cent is rounded up."""

    ship_to: str = Field(description="The customer's name, city and country.")
    lines: list[PricedLine] = Field(description="The lines of the order.")
    subtotal_cents: int = Field(description="The price of all lines, in cents.")
    discount_cents: int = Field(description="The discount on the subtotal, in cents.")
    tax_cents: int = Field(description="The tax on the discounted subtotal, in cents.")
    total_cents: int = Field(description="The amount to pay, in cents.")


class Price:
    """Price an order."""

    name = "Price an order"
    description = (
        "Price an order: the total of each line, the discount, the tax, and the amount to pay, "
        "all in whole cents."
    )
    version = "1.0.0"
    tags = ["orders", "pricing"]
    annotations = ModuleAnnotations(readonly=True, idempotent=True, open_world=False)
    examples = [
        ModuleExample(
            title="A member orders tea",
            inputs={
                "customer": {"name": "Ada", "address": {"city": "London", "country": "GB"}},
                "lines": [
                    {"sku": "tea-green", "quantity": 3, "unit_cents": 499},
                    {"sku": "mug", "quantity": 1, "unit_cents": 1250},
                ],
                "discount": "member",
            },
            output={
                "ship_to": "Ada, London, GB",
                "lines": [
                    {"sku": "tea-green", "total_cents": 1497},
                    {"sku": "mug", "total_cents": 1250},
                ],
                "subtotal_cents": 2747,
                "discount_cents": 137,
                "tax_cents": 522,
                "total_cents": 3132,
            },
        )
    ]
    input_schema = PriceInput
    output_schema = PriceOutput

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Add up the order."""
        order = PriceInput.model_validate(inputs)
        if order.discount == "bulk" and sum(line.quantity for line in order.lines) < MIN_BULK:
            raise InvalidInputError(f"The bulk discount needs {MIN_BULK} pieces")
        lines = [_price_line(line) for line in order.lines]
        subtotal = sum(line["total_cents"] for line in lines)
        discount = _share(subtotal, PERCENT_OFF[order.discount])
        tax = _share(subtotal - discount, order.tax_percent)
        return {
            "ship_to": _ship_to(order.customer),
            "lines": lines,
            "subtotal_cents": subtotal,
            "discount_cents": discount,
            "tax_cents": tax,
            "total_cents": subtotal - discount + tax,
        }


def _price_line(line: Line) -> dict[str, Any]:
    return {"sku": line.sku, "total_cents": line.quantity * line.unit_cents}


def _share(cents: int, percent: int) -> int:
    return (cents * percent + 50) // 100


def _ship_to(customer: Customer) -> str:
    return f"{customer.name}, {customer.address.city}, {customer.address.country}"
