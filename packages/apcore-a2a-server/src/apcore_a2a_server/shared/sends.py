"""What a send asks for, beside its message."""

from a2a.types import SendMessageRequest
from apcore_a2a_core import from_value
from apcore_a2a_dialects import invalid


def is_detached(request: SendMessageRequest, streaming: bool) -> bool:
    """Whether the client does not wait for the task that it starts."""
    return request.configuration.return_immediately and not streaming


def named_skill(request: SendMessageRequest) -> str | None:
    """The skill the request names: in its metadata, else in its message's.

    Raises:
        InvalidParamsError: What it names is no text.
    """
    for metadata in (request.metadata, request.message.metadata):
        if "skillId" in metadata.fields:
            skill_id = from_value(metadata.fields["skillId"])
            if not isinstance(skill_id, str):
                raise invalid("metadata.skillId", "must be a string")
            return skill_id
    return None
