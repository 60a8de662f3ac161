"""Flows of CrewAI: their questions and requests for feedback pause the task."""

# CrewAI is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NoReturn

from apcore_a2a_core import to_json
from pydantic import BaseModel, create_model

from .agent import Agent, first_paragraph, maybe_await
from .crewai import ROLES, part_out
from .crewai_runs import Question, Run, input_files, silence_crewai
from .parts import Json, text_of
from .turn import Turn

HISTORY = "history"
"""The member of a flow's state that gets the conversation."""
ID = "id"
"""The member of a flow's state by which a persisted flow finds its state again."""


@dataclass(slots=True)
class _PausedFlow:
    """Questions of a flow and their answers: the state of a pause, as JSON.

    Attributes:
        inputs: The inputs of the flow.
        answers: The questions of `Flow.ask` since the beginning or the last feedback, with their
            answers. If the flow waits for an answer, the last question has none yet.
        feedback: The last request for feedback, with the flow's id, state and question; later also
            the user's feedback. None if the flow has not asked for feedback.
    """

    inputs: Json
    answers: list[Json] = field(default_factory=list[Json])
    feedback: Json | None = None

    def record_answer(self, answer: Any) -> None:
        """Record the user's answer to the last question, or the user's feedback."""
        text = text_of(answer)
        if self.answers:
            self.answers[-1]["answer"] = text
        elif self.feedback is not None:
            self.feedback["text"] = text


class CrewAIFlowAgent(Agent):
    """A flow of CrewAI, or a function that returns one. Each turn creates a new flow.

    The inputs become members of the flow's state: the fields of a typed state are the inputs of a
    typed skill; otherwise the member `text` gets the text of the user. The member `history` gets
    the conversation, unless a typed state lacks it. A flow with persistence continues with its
    state in the next turn of the same conversation.

    `Flow.ask` and `@human_feedback` pause the task. After an answer to `ask`, the flow runs again
    from its beginning, or from the last feedback.

    Args:
        flow: The flow, or a function without parameters that returns a new one.
        methods: Names of the methods whose models stream the text of the answer.
        options: Options of `Agent`.
    """

    default_part_out = staticmethod(part_out)

    def __init__(self, flow: Any, *, methods: Iterable[str] = (), **options: Any) -> None:
        silence_crewai()
        is_flow = hasattr(flow, "kickoff_async")
        template = flow if is_flow else flow()
        flow_class = type(template)
        description = first_paragraph(flow_class.__doc__)
        defaults: Json = {"name": template.name or flow_class.__name__, "description": description}
        super().__init__(**{**defaults, **options})
        self._flow_class = flow_class
        self._fields = {name: getattr(template, name) for name in template.model_fields_set}
        if not template._instance_persistence:  # the class creates a persistence for each flow
            self._fields.pop("persistence", None)
        self._make: Callable[[], Any] = (lambda: flow_class(**self._fields)) if is_flow else flow
        self._methods = frozenset(methods)
        state = template.state
        self._takes_history = not isinstance(state, BaseModel)
        if isinstance(state, BaseModel):
            fields = type(state).model_fields
            self._takes_history = HISTORY in fields
            if not options.get("input_key"):
                self.input_schema = _inputs_model(state)

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the flow, or continue with the user's answer, and yield its events and its output."""
        silence_crewai()
        if turn.state is None:
            paused = _PausedFlow(await self._inputs(turn))
        else:
            paused = _PausedFlow(**turn.state)
            paused.record_answer(turn.answer)
        persistence = _persistence_type()()
        run = Run(lambda: self._start(turn, paused, persistence), self._is_wanted)
        question, streamed_text = None, ""
        try:
            async with aclosing(run.events()) as events:
                async for event in events:
                    if event.type == "llm_stream_chunk" and not event.tool_call:
                        streamed_text += event.chunk
                    yield event
        except Question as asked:
            question = asked
        if question is not None:
            _ask(turn, question, paused)
        if persistence.feedback is not None:
            _ask_for_feedback(turn, persistence.feedback, paused)
        text = getattr(run.result, "raw", run.result)
        is_streamed = isinstance(text, str) and streamed_text.rstrip().endswith(text.strip())
        if not (streamed_text and is_streamed):
            yield run.result

    async def _start(self, turn: Turn, paused: _PausedFlow, persistence: Any) -> Any:
        """Start the flow, or resume it after its last feedback."""
        feedback = paused.feedback
        if feedback is None:
            flow = self._make()
        else:
            feedback_store = _persistence_type()(feedback=feedback)
            fields = {n: v for n, v in self._fields.items() if n != "persistence"}
            flow_id = feedback["context"]["flow_id"]
            flow = self._flow_class.from_pending(flow_id, feedback_store, **fields)
            flow.persistence = self._fields.get("persistence")
        persistence.inner, flow.persistence = flow.persistence, persistence
        flow.stream = False  # chunks come as events of the run
        if flow.input_provider is None:
            flow.input_provider = _InputProvider(paused.answers)
        if feedback is not None:
            return await flow.resume_async(feedback["text"])
        inputs = paused.inputs
        if persistence.inner is not None:
            inputs = {**inputs, ID: turn.session_id}
        return await flow.kickoff_async(inputs=inputs, input_files=input_files(turn))

    async def _inputs(self, turn: Turn) -> Json:
        if self.input_mapper is not None:
            mapped = await maybe_await(self.input_mapper(turn.inputs, turn))
            return mapped if isinstance(mapped, dict) else {self.input_key: mapped}
        inputs = {n: v for n, v in self._own_inputs(turn).items() if n not in {ID, HISTORY}}
        if self.takes_text:
            inputs[self.input_key] = turn.text
        if self._takes_history:
            inputs[HISTORY] = [{"role": ROLES[m.role], "content": m.text} for m in turn.messages]
        return inputs

    def _is_wanted(self, event: Any) -> bool:
        from crewai.flow.flow_context import current_flow_method_name

        is_piece = event.type == "llm_stream_chunk"
        return not is_piece or current_flow_method_name.get() in self._methods


def _inputs_model(state: BaseModel) -> type[BaseModel]:
    """Return a model with the fields of a typed state, except `id` and `history`."""
    fields = [*type(state).model_fields.items()]
    inputs: Any = {name: (f.annotation, f) for name, f in fields if name not in {ID, HISTORY}}
    model: type[BaseModel] = create_model(f"{type(state).__name__}Inputs", **inputs)
    return model


class _InputProvider:
    """An `InputProvider` that returns known answers, and stops the run at a question without one.

    Args:
        answers: The questions with their answers.
    """

    def __init__(self, answers: list[Json]) -> None:
        self._answers = [*answers]

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> str:
        """Return the known answer to a question, or raise `Question`."""
        for entry in self._answers:
            if entry["question"] == message:
                self._answers.remove(entry)
                return str(entry["answer"])
        raise Question(message, to_json(metadata))


@cache
def _persistence_type() -> Any:
    """Return the class for the persistence of a run; its base class is in CrewAI."""
    from crewai.flow.async_feedback import PendingFeedbackContext
    from crewai.flow.persistence import FlowPersistence

    class TaskPersistence(FlowPersistence):  # type: ignore[misc]  # not installed here
        """Persistence that keeps requests for feedback; states go to the flow's own persistence."""

        persistence_type: str = "TaskPersistence"
        inner: Any = None
        feedback: Any = None

        def init_db(self) -> None:
            """Do nothing."""

        def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
            """Save a state with the flow's own persistence, if it has one."""
            if self.inner is not None:
                self.inner.save_state(flow_uuid, method_name, state_data)

        def load_state(self, flow_uuid: str) -> Any:
            """Load a state with the flow's own persistence, if it has one."""
            return None if self.inner is None else self.inner.load_state(flow_uuid)

        def save_pending_feedback(self, flow_uuid: str, context: Any, state_data: Any) -> None:
            """Keep a request for feedback as JSON."""
            self.feedback = {"context": to_json(context.to_dict()), "state": to_json(state_data)}

        def load_pending_feedback(self, flow_uuid: str) -> Any:
            """Return the request for feedback."""
            context = PendingFeedbackContext.from_dict(self.feedback["context"])
            return self.feedback["state"], context

    return TaskPersistence


def _ask(turn: Turn, question: Question, paused: _PausedFlow) -> NoReturn:
    paused.answers.append({"question": question.text})
    turn.ask(question.text, question.data, state=asdict(paused))


def _ask_for_feedback(turn: Turn, feedback: Json, paused: _PausedFlow) -> NoReturn:
    context = feedback["context"]
    output = context["method_output"]
    output_text = text_of(output)
    data = {"method": context["method_name"], "output": output}
    if context["emit"]:
        data["outcomes"] = context["emit"]
    state = _PausedFlow(paused.inputs, feedback=feedback)
    turn.ask(f"{output_text}\n\n{context['message']}", data, state=asdict(state))
