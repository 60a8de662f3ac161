"""A busy shop: an agent with nested calls, paused tasks, failures, and webhooks that fail."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

from apcore import Executor, ModuleAnnotations, Registry
from apcore_a2a_server.push import PushSettings

from tests.push.receiver import Delivery, Receiver, Reply, receiving
from tests.server.checking_client import Json
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, StreamModule, echo
from tests.server.modules import Inputs
from tests.serving import running

from .other_client import OtherClient
from .test_watch import PNG

DESTRUCTIVE = ModuleAnnotations(requires_approval=True, destructive=True)
QUICK = PushSettings(dev=True, retries=[0.02, 0.02])

REPORT = """# October

Sales are **up by 12 %** since September.

1. Tea leads with 980 orders.
2. Mugs follow.
"""

PLACE_SCHEMA: Json = {
    "type": "object",
    "description": "An order of a customer.",
    "properties": {
        "customer": {
            "type": "object",
            "title": "Customer",
            "properties": {
                "name": {"type": "string", "title": "Name", "examples": ["Ada"]},
                "email": {"type": "string", "format": "email", "title": "Email"},
                "member": {"type": "boolean", "title": "Member", "default": False},
            },
            "required": ["name"],
        },
        "lines": {
            "type": "array",
            "title": "Lines",
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "description": "Number of the article"},
                    "quantity": {"type": "integer", "minimum": 1, "default": 1},
                },
                "required": ["sku"],
            },
        },
        "shipping": {"enum": ["post", "courier", "pick up"], "default": "post"},
        "deliver_on": {"type": "string", "format": "date"},
        "notes": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["customer", "lines"],
    "propertyOrder": ["customer", "lines", "shipping", "deliver_on", "notes"],
}
ORDER: Json = {
    "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
    "lines": [{"sku": "tea-green", "quantity": 2}, {"sku": "mug", "quantity": 1}],
}
NIGHTS_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "nights": {"type": "integer", "minimum": 1},
        "view": {"enum": ["garden", "sea"]},
    },
    "required": ["nights"],
}


def schema_of(**properties: Json) -> Json:
    """Return the schema of an object with some members, the first of which is required."""
    return {"type": "object", "properties": properties, "required": [*properties][:1]}


TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer"}
SCHEMAS: dict[str, Json] = {
    "orders.place": PLACE_SCHEMA,
    "orders.refund": schema_of(order=NUMBER, cents=NUMBER, reason=TEXT),
    "orders.purge": schema_of(year=NUMBER, including={"type": "array", "items": TEXT}),
    "reports.monthly": schema_of(month={**NUMBER, "minimum": 1, "maximum": 12}),
    "imports.run": schema_of(file=TEXT),
    "rooms.reserve": schema_of(room=TEXT),
    "jobs.rest": {"type": "object", "properties": {"seconds": NUMBER}},
}


def shop() -> Executor:
    """Return an executor of the shop's modules, some of which call others."""
    modules = Registry()
    executor = Executor(modules)

    async def place(inputs: Inputs, context: Any) -> Inputs:
        await executor.call_async("stock.reserve", {"lines": inputs.get("lines", [])}, context)
        await executor.call_async("payments.charge", {"cents": 3132}, context)
        return {
            "order": 4711,
            "total_cents": 3132,
            "lines": [
                {"sku": "tea-green", "quantity": 2, "cents": 980},
                {"sku": "mug", "quantity": 1, "cents": 2152},
            ],
            "receipt": REPORT,
        }

    async def reserve(inputs: Inputs, context: Any) -> Inputs:
        await executor.call_async("stock.count", {"sku": "tea-green"}, context)
        return {"reserved": True}

    async def charge(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.sleep(0.05)
        return {"paid": True}

    async def report(inputs: Inputs, context: Any) -> Inputs:
        chart = {"bytes": b64encode(PNG).decode(), "mimeType": "image/png", "name": "chart.png"}
        return {
            "text": REPORT,
            "rows": [{"week": n, "orders": 100 * n, "growth": n / 4} for n in range(1, 9)],
            "chart": chart,
        }

    async def fail(inputs: Inputs, context: Any) -> Inputs:
        raise ValueError("The file has no header")

    async def ask(inputs: Inputs, context: Any) -> Inputs:
        if "nights" not in inputs:
            context.services.ask("For how many nights?", schema=NIGHTS_SCHEMA)
        return {"booked": inputs}

    async def stream_report(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        for word in REPORT.split(" "):
            yield {"text": f"{word} "}

    async def rest(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.sleep(inputs.get("seconds", 3600))
        return {"rested": True}

    actions: dict[str, tuple[Any, dict[str, Any]]] = {
        "orders.place": (
            place,
            {
                "description": "Place an order, and charge the customer for it",
            },
        ),
        "orders.refund": (
            echo,
            {"annotations": NEEDS_APPROVAL, "description": "Pay the price of an order back"},
        ),
        "orders.purge": (
            echo,
            {"annotations": DESTRUCTIVE, "description": "Delete the orders of a year for good"},
        ),
        "stock.reserve": (reserve, {"description": "Put articles aside for an order"}),
        "stock.count": (
            echo,
            {
                "annotations": ModuleAnnotations(readonly=True),
                "description": "Count the articles in the warehouse",
            },
        ),
        "payments.charge": (charge, {"description": "Charge a card"}),
        "reports.monthly": (
            report,
            {
                "annotations": ModuleAnnotations(readonly=True, cacheable=True),
                "description": "Write the report of a month, with a table and a chart",
            },
        ),
        "imports.run": (fail, {"description": "Import orders from a file"}),
        "rooms.reserve": (ask, {"description": "Reserve a meeting room, after a question"}),
        "jobs.rest": (rest, {"description": "Run until it is canceled"}),
    }
    for name, (action, attributes) in actions.items():
        schema = SCHEMAS.get(name, {"type": "object"})
        modules.register(name, ActionModule(action, input_schema=schema, **attributes))
    modules.register(
        "reports.tell",
        StreamModule(
            stream_report,
            input_schema={"type": "object"},
            description="Stream the report word by word",
            annotations=ModuleAnnotations(streaming=True),
        ),
    )
    return executor


def refuse_notification(delivery: Delivery) -> Reply:
    """Answer a notification with HTTP 503, so that it is sent again."""
    return Reply(503)


@contextmanager
def busy_shop(**options: Any) -> Iterator[tuple[str, Receiver]]:
    """Serve the shop, without tasks; yield its URL, and a receiver for its webhooks."""
    defaults: dict[str, Any] = {"name": "Tea shop", "explorer": True, "push_notifications": QUICK}
    with (
        closing(shop()) as executor,
        receiving(refuse_notification) as receiver,
        running(executor, **{**defaults, **options}) as url,
    ):
        yield url, receiver


def fill(url: str, receiver: Receiver, key: str = "") -> dict[str, Json]:
    """Give the shop a task of each kind, with a webhook; return the tasks by their skills."""
    inputs: dict[str, Json] = {
        "orders.refund": {"order": 4711, "cents": 980, "reason": "The mug is broken"},
        "orders.purge": {"year": 2019, "including": ["invoices", "letters"]},
        "rooms.reserve": {"room": "garden"},
        "imports.run": {"file": "orders.csv"},
        "reports.monthly": {"month": 10},
        "orders.place": ORDER,
        "jobs.rest": {},
    }
    with closing(OtherClient(url, key)) as client:
        return {
            skill: client.call(
                "SendMessage",
                message={"messageId": skill, "role": "ROLE_USER", "parts": [{"data": data}]},
                metadata={"skillId": skill},
                configuration={
                    "returnImmediately": skill == "jobs.rest",
                    "taskPushNotificationConfig": {"url": receiver.url, "id": "hook"},
                },
            )["task"]
            for skill, data in inputs.items()
        }
