"""Lists of tasks, page by page."""

from typing import Any

from apcore_a2a_server.store.cursors import number_of
from apcore_a2a_server.store.port import Page, Query
from apcore_a2a_server.store.postgres import sql

from .outbox import Ask
from .rows import owner_bytes, record_of


async def page(ask: Ask, query: Query) -> Page:
    """A page of what *query* asks for."""
    values: list[Any] = [owner_bytes(query.owner)]
    where = ["owner = $1"]
    wishes = ("context_id = ", query.context_id), ("state = ", query.state)
    for wish, value in (*wishes, ("status_at >= ", query.after)):
        if value:
            values.append(value)
            where.append(f"{wish}${len(values)}")
    total = 0
    if query.order == "updated":
        count = f"SELECT count(*) FROM apcore_a2a.tasks WHERE {' AND '.join(where)}"
        total = await ask("fetchval", count, *values)
    if query.cursor is not None:
        values.append(number_of(query.cursor))
        where.append(f"{query.order} < ${len(values)}")
    rows = await ask(
        "fetch",
        f"SELECT {sql.COLUMNS}, t.{query.order} AS place FROM apcore_a2a.tasks t"
        f" WHERE {' AND '.join(where)}"
        f" ORDER BY {query.order} DESC LIMIT ${len(values) + 1}",
        *values,
        query.limit + 1,
    )
    more = len(rows) > query.limit
    cursor = str(rows[query.limit - 1]["place"]) if more else None
    return Page([record_of(row) for row in rows[: query.limit]], cursor, total)
