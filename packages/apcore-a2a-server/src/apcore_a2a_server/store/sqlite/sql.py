"""The statements about tasks."""

from functools import cache

COLUMNS = "owner, skill, version, resume, messages, deadline, id, body, body_version"
"""A record; the events after `body_version` have what the body lacks."""

NEXT_UPDATE = "(SELECT coalesce(max(updated), 0) + 1 FROM tasks)"
"""The number of the next change of a state."""

CREATE = f"""
INSERT INTO tasks (id, owner, context_id, skill, state, status_at, updated, version, messages,
    body, body_version, resume, epoch, attempts, expires)
VALUES (:task_id, :owner, :context_id, :skill, :state, :status_at, {NEXT_UPDATE}, :version,
    :messages, :body, :version, :resume, 1, 0, :expires)
"""
"""Insert a task, leased to its writer."""

GET_KEY = "SELECT digest, task_id FROM sends WHERE owner = :owner AND key = :key"
"""Return the send that was known by an idempotency key."""

ADD_KEY = """
INSERT INTO sends (owner, key, digest, task_id) VALUES (:owner, :key, :digest, :task_id)
"""
"""Keep the idempotency key of a send."""

GET_VERSION = "SELECT version, epoch, first_event, messages FROM tasks WHERE id = :task_id"
"""Return what a change depends on."""

CHANGE_STATE = f"""
UPDATE tasks SET
    state = :state, status_at = :status_at, updated = {NEXT_UPDATE}, messages = :messages,
    resume = :resume, deadline = :deadline, body = :body,
    body_version = :version, version = :version,
    epoch = epoch + :run, attempts = CASE WHEN :run THEN 0 ELSE attempts END,
    expires = CASE WHEN :settled THEN NULL WHEN :run THEN :expires ELSE expires END,
    ended = :ended
WHERE id = :task_id
"""
"""Change the state of a task, and who runs it."""

SAVE_BODY = """
UPDATE tasks SET body = :body, body_version = :version, version = :version WHERE id = :task_id
"""
"""Write the body of a task with what its events said."""

SAVE_VERSION = "UPDATE tasks SET version = :version WHERE id = :task_id"
"""Set the version of a task to which chunks were added; its body stays as it is."""

ADD_EVENT = "INSERT INTO events (task_id, version, body) VALUES (:task_id, :version, :body)"
"""Add an event to the log of a task."""

DELETE_EVENTS = "DELETE FROM events WHERE task_id = :task_id AND version < :first"
"""Delete the oldest events of a task."""

SAVE_FIRST_EVENT = "UPDATE tasks SET first_event = :first WHERE id = :task_id"
"""Set the version of the first event that is kept."""

ADD_MESSAGE = """
INSERT INTO messages (owner, context_id, task_id, body)
VALUES (:owner, :context_id, :task_id, :body)
"""
"""Add a message to a conversation."""

GET = f"SELECT {COLUMNS} FROM tasks WHERE id = :task_id"
"""Return the record of a task."""

GET_OWN = f"{GET} AND owner = :owner"
"""Return the record of a task if it is the owner's."""

FIRST_EVENT = "SELECT first_event FROM tasks WHERE id = :task_id"
"""Return the version of the first event that is kept."""

EVENTS = """
SELECT version, body FROM events WHERE task_id = :task_id AND version > :after
ORDER BY version LIMIT :limit
"""
"""Return the next events of a task."""

CONVERSATION = """
SELECT body FROM messages WHERE owner = :owner AND context_id = :context_id
ORDER BY number DESC LIMIT :limit
"""
"""Return the latest messages of a conversation, the latest first."""


@cache
def list_tasks(filters: tuple[str, ...], order: str) -> str:
    """Return a page of the tasks that the *filters* take, newest first."""
    return f"""
SELECT {COLUMNS}, {order} AS place FROM tasks WHERE {" AND ".join(filters)}
ORDER BY {order} DESC LIMIT :limit
"""


@cache
def count_tasks(filters: tuple[str, ...]) -> str:
    """Return the number of tasks that the *filters* take."""
    return f"SELECT count(*) FROM tasks WHERE {' AND '.join(filters)}"


DELIVERED = """NOT EXISTS (
    SELECT 1 FROM outbox WHERE task_id = t.id AND due IS NOT NULL AND since > :yesterday
)"""
"""No notification about the task is pending; one that is a day old holds nothing back."""

OVER = f"""
SELECT id AS task_id FROM tasks t WHERE ended < :before AND {DELIVERED}
AND NOT EXISTS (
    SELECT 1 FROM tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
    AND (o.ended IS NULL OR o.ended >= :before)
)
ORDER BY ended LIMIT :limit
"""
"""Return tasks of conversations that were over `before`."""

SURPLUS = f"""
SELECT id AS task_id FROM tasks t WHERE ended IS NOT NULL AND {DELIVERED}
ORDER BY ended DESC LIMIT :limit OFFSET :kept
"""
"""Return ended tasks beyond the number that is kept."""

DELETE = (
    "DELETE FROM tasks WHERE id = :task_id",
    *(
        f"DELETE FROM {table} WHERE task_id = :task_id"
        for table in ("events", "messages", "webhooks", "sends", "outbox")
    ),
)
"""Delete a task with all that belongs to it."""

RENEW = """
UPDATE tasks SET expires = :expires
WHERE id = :task_id AND epoch = :epoch AND expires IS NOT NULL
"""
"""Renew a lease that is still held."""

EXPIRED = f"""
SELECT {COLUMNS}, epoch, attempts FROM tasks WHERE expires <= :now
UNION ALL
SELECT {COLUMNS}, epoch, attempts FROM tasks WHERE expires IS NULL AND deadline <= :time
LIMIT :limit
"""
"""Return tasks whose lease has expired by the clock of leases, or whose deadline is over."""

CLAIM = """
UPDATE tasks SET epoch = :epoch, attempts = :attempts, expires = :expires WHERE id = :task_id
"""
"""Lease a task."""
