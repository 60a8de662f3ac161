"""Redaction of inputs and outputs: the same result as apcore's, but faster."""

from typing import Any

import pytest
from apcore.observability.context_logger import RedactionConfig
from apcore.utils.redaction import redact_sensitive
from apcore_a2a_server.modules.redaction import Redaction
from apcore_a2a_server.modules.validation import LinearSchema
from hypothesis import given, settings
from hypothesis import strategies as st

from .inloop import ActionModule, serving
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

SECRET = {"type": "string", "x-sensitive": True}
SCHEMAS = {
    "plain": {"type": "object", "properties": {"note": {"type": "string"}}},
    "marked": {"type": "object", "properties": {"note": SECRET}},
    "marked by reference": {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Note"}}},
        "$defs": {"Note": {"type": "object", "properties": {"note": SECRET}}},
    },
}
RULES = {
    "default": RedactionConfig.default(),
    "names": RedactionConfig(sensitive_keys=["no*", "Item-s", ""], replacement="-"),
    "values": RedactionConfig(regex_patterns=["^se"]),
    "no replacement": RedactionConfig(sensitive_keys=["no*"], replacement=""),
}
NAMES = ["note", "items", "password", "X-API-Key", "AccessKey", "_secret_a", "trace_id", "é", ""]
names = st.sampled_from(NAMES) | st.text(max_size=4)
atoms = st.none() | st.booleans() | st.integers() | st.floats() | st.just("secret") | st.binary()
other_values = st.just((1, {"password": "x"})) | st.sets(st.integers(), max_size=2)
values: st.SearchStrategy[Any] = st.recursive(
    atoms | other_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("examples", [25, pytest.param(2500, marks=pytest.mark.soak)])
def test_a_value_is_redacted_as_apcore_redacts_it(rules: str, schema: str, examples: int) -> None:
    config, redact = RULES[rules], Redaction(RULES[rules])

    @settings(max_examples=examples, deadline=None)
    @given(st.dictionaries(names, values, max_size=4))
    def check(data: dict[str, Any]) -> None:
        expected = redact_sensitive(
            data,
            SCHEMAS[schema],
            sensitive_keys=config.sensitive_keys,
            regex_patterns=config.compiled_regex_patterns,
            replacement=config.replacement,
        )
        redacted = redact(data, LinearSchema(SCHEMAS[schema]))
        assert repr(redacted) == repr(expected)
        assert redacted is not data

    check()


def test_the_redacted_copy_shares_no_mutable_value_with_the_original() -> None:
    data = {"a": [{"b": [1]}]}
    redacted = Redaction(RedactionConfig.default())(data, LinearSchema({}))
    redacted["a"][0]["b"].append(2)
    assert data == {"a": [{"b": [1]}]}


@pytest.mark.anyio
@pytest.mark.parametrize("schema", ["plain", "marked"])
async def test_the_context_of_a_run_has_its_redacted_inputs_and_output(schema: str) -> None:
    contexts: list[Any] = []

    async def action(inputs: Inputs, context: Any) -> Any:
        contexts.append((context, context.redacted_inputs))
        return {"note": "n", "token": "t"}

    module: Any = ActionModule(action)
    module.input_schema = module.output_schema = SCHEMAS[schema]
    async with serving({"work": module}) as peer:
        part = peer.part(data={"note": "n", "password": "p"})
        assert (await peer.send("work", part)).state == "completed"
    [(context, inputs)] = contexts
    note = "n" if schema == "plain" else "***REDACTED***"
    assert inputs == {"note": note, "password": "***REDACTED***"}
    assert context.redacted_output == {"note": note, "token": "***REDACTED***"}
