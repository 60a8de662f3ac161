"""Delegate tasks of a CrewAI crew to the agent."""

# mypy: ignore-errors
# The library is in another environment.

import json
import os

# Before the import, which starts telemetry.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.a2a import A2AClientConfig
from pydantic import Field
from steps import LOCKED_URL, error_text, run


class ScriptedModel(BaseLLM):
    """A model that delegates a text in each call, and gives up when none is left."""

    texts: list[str]
    prompts: list[str] = Field(default_factory=list)

    def call(self, messages, *args, **options) -> str:
        """Delegate the next text."""
        self.prompts.append(messages[-1]["content"])
        text = self.texts.pop(0) if self.texts else None
        return json.dumps({"a2a_ids": [], "message": text or "Sorry", "is_a2a": text is not None})


async def delegate(url: str, *texts: str) -> tuple[str, list[str]]:
    """Delegate *texts* to the agent; return the crew's result and its model's prompts."""
    model = ScriptedModel(model="scripted", texts=list(texts))
    # Without this trust, artifacts do not reach the crew: its model sees only messages.
    remote = A2AClientConfig(
        endpoint=f"{url}/.well-known/agent-card.json", trust_remote_completion_status=True
    )
    agent = Agent(role="Waiter", goal="Serve tea", backstory="", llm=model, a2a=remote)
    task = Task(description="Serve", expected_output="Tea", agent=agent)
    result = await Crew(agents=[agent], tasks=[task]).kickoff_async()
    return result.raw, model.prompts


async def card(url: str) -> str:
    _, prompts = await delegate(url, "hello")
    return prompts[0]


async def send(url: str) -> str:
    result, _ = await delegate(url, "hello")
    return result


async def stream(url: str) -> str:
    result, _ = await delegate(f"{url}/count", "go")  # a crew returns only the whole text
    return result


async def question(url: str) -> list[str]:
    result, prompts = await delegate(f"{url}/table", "A table, please", "friday")
    return [prompts[-1], result]


async def result(url: str) -> str:
    result, _ = await delegate(f"{url}/price", "green tea")
    return result


async def refusal(url: str) -> list[str]:
    task_failure, input_refusal = [
        (await delegate(f"{url}/order", text))[1][-1] for text in ("50", "many")
    ]
    return [task_failure, input_refusal, await error_text(delegate(LOCKED_URL, "hello"))]


run(card, send, stream, question, result, refusal)
