"""An executor of a2a-sdk; serve it with `apcore-a2a serve agent.py:executor`."""

from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue


class EchoExecutor(AgentExecutor):
    """Repeats what the user says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer with a message."""
        await event_queue.enqueue_event(new_text_message(f"You said {context.get_user_input()}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do nothing: the answer comes at once, so there is nothing to cancel."""


executor = EchoExecutor()
