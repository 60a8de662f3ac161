"""What the agent says in a task."""

from a2a import types as a2a

from .ids import new_id


def say(about: a2a.Message, *parts: str | a2a.Part) -> a2a.Message:
    """A message of the agent in the task of another message."""
    return a2a.Message(
        message_id=new_id(),
        task_id=about.task_id,
        context_id=about.context_id,
        role=a2a.Role.ROLE_AGENT,
        parts=[a2a.Part(text=part) if isinstance(part, str) else part for part in parts],
    )
