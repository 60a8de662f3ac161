"""What the agent says about a task."""

from a2a.types import Message, Part, Role

from .ids import new_id


def say(task_id: str, context_id: str, text: str, *parts: Part) -> Message:
    """A message of the agent: *text*, then further parts.

    Example:
        ```python
        from apcore_a2a_server.messages import say

        print(say("t1", "c1", "Canceled by client").parts[0].text)
        #> Canceled by client
        ```
    """
    return Message(
        message_id=new_id(),
        task_id=task_id,
        context_id=context_id,
        role=Role.ROLE_AGENT,
        parts=[Part(text=text, media_type="text/plain"), *parts],
    )
