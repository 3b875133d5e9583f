"""The tools of the support assistant: what the models are told of them, and what runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

ORDERS = [
    {"order": "4711", "status": "refunded", "placed": "2025-03-02", "customer": "Ines Duarte"},
    {"order": "4790", "status": "open", "placed": "2025-03-12", "customer": "Luis Moreno"},
    {"order": "4821", "status": "open", "placed": "2025-03-01", "customer": "Ines Duarte"},
]
CUSTOMERS = [{"name": "Ines Duarte", "tier": "gold"}, {"name": "Luis Moreno", "tier": "silver"}]


def search_orders(status: str, **period: str) -> list[dict[str, str]]:
    since, until = period["from"], period["to"]
    return [order for order in ORDERS if order["status"] == status and since <= order["placed"] <= until]


def get_order(order_id: str) -> dict[str, str]:
    return next(order for order in ORDERS if order["order"] == order_id)


def get_customer(name: str, orders: bool = False) -> dict[str, Any]:
    customer = next(customer for customer in CUSTOMERS if customer["name"] == name)
    return {**customer, "orders": [order for order in ORDERS if order["customer"] == name]} if orders else customer


def open_return(order_id: str, note: str) -> dict[str, str]:
    return {"return": f"R-{order_id}", "note": note}


def message_carrier(order_id: str, message: str) -> dict[str, str]:
    return {"order": order_id, "sent": message}


def _schema(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


TEXT = {"type": "string"}
TOOLS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "search_orders": (
        search_orders,
        "Find orders of one status, placed between two dates.",
        _schema(
            {"status": {"type": "string", "enum": ["open", "shipped", "refunded"]}, "from": TEXT, "to": TEXT},
        ),
    ),
    "get_order": (get_order, "Look an order up.", _schema({"order_id": TEXT})),
    "get_customer": (get_customer, "Look a customer up.", _schema({"name": TEXT}, {"orders": {"type": "boolean"}})),
    "open_return": (open_return, "Open a return for an order.", _schema({"order_id": TEXT, "note": TEXT})),
    "message_carrier": (message_carrier, "Write to the carrier.", _schema({"order_id": TEXT, "message": TEXT})),
}
"""Name → function, description, schema of the arguments."""


def run(name: str, arguments: str) -> str:
    """Run a tool with the arguments that a model wrote, and give the result as JSON."""
    print(f"    [{name}]")
    function = TOOLS[name][0]
    return json.dumps(function(**json.loads(arguments or "{}")))
