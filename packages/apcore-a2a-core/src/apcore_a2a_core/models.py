"""Pydantic models for modules that take and return text.

>>> Prompt.model_validate({"text": "Hello"}).text
'Hello'
>>> Reply(text="Hello").model_dump()
{'text': 'Hello'}
"""

from pydantic import BaseModel, ConfigDict, Field

from .schema import TEXT_FIELD


class Prompt(BaseModel):
    """The inputs of a module that takes text; inputs other than `text` are ignored.

    Use it as `input_schema`: a message with text then calls the module with ``{"text": …}``.
    """

    text: str = Field(description="What to say to the agent.")


class Reply(BaseModel):
    """The output of a module that returns text, and maybe other members.

    Use it as `output_schema`: clients get the member `text` of the output as text, and other
    members, if there are any, as additional data.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={TEXT_FIELD: "text"})

    text: str = Field(description="What the agent says.")
