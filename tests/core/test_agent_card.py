"""Agent cards of real registries, checked against the SDK and the schema of A2A 0.3."""

import copy
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCapabilities, AgentCard
from apcore import ModuleAnnotations, ModuleExample, Registry
from apcore.decorator import module
from apcore_a2a_core import (
    EXTENSION_URI,
    AgentCardBuilder,
    Catalog,
    SkillMapper,
    card_to_dict,
)
from apcore_a2a_core.agent_card import security_scheme
from google.protobuf.json_format import ParseDict
from pydantic import BaseModel

from .conftest import Item, OrderModule

SCHEMA = json.loads((Path(__file__).parents[1] / "data/a2a-0.3.0.schema.json").read_text())
ALL_SCHEMES: dict[str, dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key"},
    "oauth": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": "https://example.org/token"}},
    },
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://example.org/.well-known"},
    "mtls": {"type": "mutualTLS"},
}


@pytest.fixture
def builder() -> AgentCardBuilder:
    return AgentCardBuilder(SkillMapper())


@pytest.fixture
def build(builder: AgentCardBuilder) -> Callable[..., AgentCard]:
    def made(registry: Any, **options: Any) -> AgentCard:
        options.setdefault("capabilities", AgentCapabilities(streaming=True))
        empty = {"name": "", "description": "", "version": "", "url": "http://localhost:8000/"}
        return builder.build(registry, **{**empty, **options})

    return made


Build = Callable[..., AgentCard]


def module_with(**members: Any) -> OrderModule:
    found = OrderModule()
    for name, value in members.items():
        setattr(found, name, value)
    return found


@pytest.fixture
def rich(registry: Registry) -> Registry:
    registry.register(
        "shop.look",
        module_with(
            annotations=ModuleAnnotations(readonly=True, cache_ttl=60),
            examples=[ModuleExample(title="one", inputs={"items": []}, output={"total": 0})],
            documentation="Looks, and never touches.",
            tags=["shop"],
        ),
    )
    return registry


def details(card: AgentCard) -> dict[str, Any]:
    [extension] = card_to_dict(card)["capabilities"]["extensions"]
    assert extension["uri"] == EXTENSION_URI
    skills: dict[str, Any] = extension["params"]["skills"]
    return skills


def test_a_card_says_who_the_agent_is_and_where(build: Build, rich: Registry) -> None:
    card = build(rich, name="Shop", description="Sells", version="1.2.3")
    assert (card.name, card.description, card.version) == ("Shop", "Sells", "1.2.3")
    assert [(i.protocol_binding, i.protocol_version, i.url) for i in card.supported_interfaces] == [
        ("JSONRPC", "1.0", "http://localhost:8000/"),
        ("JSONRPC", "0.3", "http://localhost:8000/"),
        ("HTTP+JSON", "1.0", "http://localhost:8000/"),
    ]
    assert list(card.default_input_modes) == ["text/plain", "application/json"]
    assert list(card.default_output_modes) == ["application/json"]
    assert [skill.id for skill in card.skills] == ["shop.look", "shop.order"]


def test_what_is_not_said_has_defaults(build: Build, rich: Registry) -> None:
    card = build(rich)
    assert (card.name, card.version) == ("apcore-agent", "0.0.0")
    assert card.description == "apcore agent with 2 skills"


def test_an_empty_registry_makes_a_valid_card(build: Build, tmp_path: Path) -> None:
    card = build(Registry(extensions_dir=str(tmp_path)))
    assert card_to_dict(card)["skills"] == []
    assert details(card) == {}


def test_the_extension_says_more_of_each_skill(build: Build, rich: Registry) -> None:
    look = details(build(rich))["shop.look"]
    assert look["annotations"]["readonly"] is True
    assert repr(look["annotations"]["cache_ttl"]) == "60"
    assert "$ref" not in json.dumps(look["inputSchema"])
    assert repr(look["inputSchema"]["properties"]["items"]["items"]["properties"]["count"]) != ""
    assert look["outputSchema"]["properties"]["total"]["type"] == "integer"
    assert look["examples"][0]["inputs"] == {"items": []}
    assert look["documentation"] == "Looks, and never touches."
    assert "annotations" not in details(build(rich))["shop.order"]


def test_what_cant_be_carried_is_left_out_and_the_skill_stays(
    build: Build, registry: Registry
) -> None:
    circular = {"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}}
    endless = {"type": "object", "default": float("inf")}
    registry.register("odd.one", module_with(input_schema=circular, output_schema=endless))
    card = build(registry)
    assert "odd.one" in [skill.id for skill in card.skills]
    assert details(card)["odd.one"] == {}


def test_a_card_with_the_deepest_schema_survives_protobuf(build: Build, registry: Registry) -> None:
    for depth, kept in ((13, True), (20, False)):
        schema: dict[str, Any] = {"type": "object"}
        for _ in range(depth):
            schema = {"type": "object", "properties": {"inner": schema}}
        registry.register(f"deep.m{depth}", module_with(input_schema=schema))
        card = build(registry)
        assert AgentCard.FromString(card.SerializeToString()) == card
        assert ("inputSchema" in details(card)[f"deep.m{depth}"]) is kept


def test_the_builders_capabilities_are_not_changed(build: Build, rich: Registry) -> None:
    capabilities = AgentCapabilities(push_notifications=True)
    card = build(rich, capabilities=capabilities)
    assert card.capabilities.push_notifications
    assert not capabilities.extensions


def test_modules_without_description_are_skipped_with_one_warning(
    build: Build, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("no.words", module_with(description=""))
    catalog = Catalog(registry)
    caplog.clear()
    for _ in range(3):
        card = build(catalog)
    assert [skill.id for skill in card.skills] == ["shop.order"]
    assert [record.getMessage() for record in caplog.records] == [
        "Skipping module no.words: missing description"
    ]
    assert card.description == "apcore agent with 1 skills"


def test_only_what_is_visible_is_shown(build: Build, rich: Registry) -> None:
    card = build(rich, visible=lambda module_id: module_id == "shop.look")
    assert [skill.id for skill in card.skills] == ["shop.look"]
    assert list(details(card)) == ["shop.look"]


def test_an_extended_card_is_a_copy(
    build: Build, builder: AgentCardBuilder, rich: Registry
) -> None:
    base = build(rich)
    extended = builder.build_extended(base_card=base)
    assert extended == base
    extended.name = "other"
    assert base.name == "apcore-agent"


def test_a_changed_module_is_seen_after_invalidation(
    build: Build, builder: AgentCardBuilder, registry: Registry
) -> None:
    catalog = Catalog(registry)
    registry.on("register", lambda module_id, _: catalog.invalidate(module_id))
    assert build(catalog).skills[0].description == "Adds up an order"
    registry.unregister("shop.order")
    registry.register("shop.order", module_with(description="Changed"))
    assert build(catalog).skills[0].description == "Changed"
    builder.invalidate_cache()
    assert build(catalog).skills[0].description == "Changed"


def test_descriptors_are_made_once(registry: Registry) -> None:
    catalog = Catalog(registry)
    first = catalog.descriptor("shop.order")
    assert first is catalog.descriptor("shop.order")
    catalog.invalidate("other.module")
    assert first is catalog.descriptor("shop.order")
    catalog.invalidate()
    assert first is not catalog.descriptor("shop.order")


def test_unknown_ids_are_not_remembered(registry: Registry) -> None:
    catalog = Catalog(registry)
    assert catalog.descriptor("late.comer") is None
    registry.register("late.comer", OrderModule())
    assert catalog.descriptor("late.comer")


def test_one_broken_module_costs_nobody_else_their_place(
    build: Build, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    class Unfinished(BaseModel):
        later: "Missing"  # type: ignore[name-defined]  # noqa: F821

    registry.register("bad.model", module_with(input_schema=Unfinished))
    with pytest.raises(Exception, match="not fully defined"):
        registry.get_definition("bad.model")
    catalog = Catalog(registry)
    caplog.clear()
    for _ in range(3):
        card = build(catalog)
    assert [skill.id for skill in card.skills] == ["shop.order"]
    [record] = caplog.records
    assert "bad.model" in record.getMessage()


def test_system_modules_and_undiscoverable_ones_are_hidden() -> None:
    class Older:
        """A registry that lists everything, as older ones do."""

        def list(self) -> Any:
            return ["system.control.reload_module", "shop.order", "secret.one"]

        def get_definition(self, module_id: str) -> Any:
            return module_with(
                annotations=ModuleAnnotations(discoverable="secret" not in module_id)
            )

    assert Catalog(Older()).ids() == ["shop.order"]


def test_the_display_of_a_decorated_function_is_found(build: Build, registry: Registry) -> None:
    display = {"a2a": {"alias": "Shout"}}

    @module(id="text.upper", registry=registry, description="Upper case", display=display)  # type: ignore[untyped-decorator]
    def upper(text: str) -> str:
        return text.upper()

    assert [skill.name for skill in build(registry).skills] == ["Shop Order", "Shout"]
    definition = registry.get_definition("text.upper")
    assert definition
    assert "display" not in definition.metadata


def test_a_change_while_a_descriptor_is_made_is_not_lost(registry: Registry) -> None:
    loading, changed = threading.Event(), threading.Event()

    class Slow:
        def list(self) -> list[str]:
            return ["shop.order"]

        def get_definition(self, module_id: str) -> Any:
            found = registry.get_definition(module_id)
            if not changed.is_set():
                loading.set()
                changed.wait(0.2)
            return found

    catalog = Catalog(Slow())
    reader = threading.Thread(target=catalog.descriptor, args=["shop.order"])
    reader.start()
    loading.wait()
    registry.unregister("shop.order")
    registry.register("shop.order", module_with(description="Changed"))
    changed.set()
    catalog.invalidate("shop.order")
    reader.join()
    described: Any = catalog.descriptor("shop.order")
    assert described.description == "Changed"


def test_cards_are_built_while_other_threads_change_the_registry(
    build: Build, registry: Registry
) -> None:
    catalog = Catalog(registry)

    def churn() -> None:
        for i in range(30):
            registry.register(f"churn.m{i}", OrderModule())
            catalog.invalidate()
            registry.unregister(f"churn.m{i}")

    thread = threading.Thread(target=churn)
    thread.start()
    while thread.is_alive():
        assert "shop.order" in [skill.id for skill in build(catalog).skills]
    thread.join()


def test_every_kind_of_security_scheme_is_declared_as_an_alternative(
    build: Build, rich: Registry
) -> None:
    card = build(rich, security_schemes=ALL_SCHEMES)
    schemes = {name: card.security_schemes[name].WhichOneof("scheme") for name in ALL_SCHEMES}
    assert schemes == {
        "bearer": "http_auth_security_scheme",
        "key": "api_key_security_scheme",
        "oauth": "oauth2_security_scheme",
        "oidc": "open_id_connect_security_scheme",
        "mtls": "mtls_security_scheme",
    }
    assert [list(r.schemes) for r in card.security_requirements] == [[n] for n in ALL_SCHEMES]
    shown = card_to_dict(card)["securitySchemes"]
    for name, form in ALL_SCHEMES.items():
        assert form.items() <= shown[name].items() or name == "oauth"
    assert shown["oauth"]["flows"]["clientCredentials"]["scopes"] == {}


@pytest.mark.parametrize("form", [{"type": "basic"}, {}])
def test_an_unknown_security_scheme_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="security scheme"):
        security_scheme(form)


@pytest.fixture(params=[False, True], ids=["open", "secured"])
def shown(request: pytest.FixtureRequest, build: Build, rich: Registry) -> Iterator[AgentCard]:
    if request.param:
        capabilities = AgentCapabilities(streaming=True, extended_agent_card=True)
        yield build(rich, capabilities=capabilities, security_schemes=ALL_SCHEMES)
    else:
        yield build(rich, capabilities=AgentCapabilities())


def test_the_merged_card_is_a_valid_card_of_protocol_0_3(shown: AgentCard) -> None:
    schema = {**SCHEMA, "$ref": "#/definitions/AgentCard"}
    jsonschema.validate(card_to_dict(shown, state_transition_history=True), schema)


def test_the_merged_card_reads_back_as_the_same_card_of_protocol_1(shown: AgentCard) -> None:
    read = ParseDict(card_to_dict(shown), AgentCard(), ignore_unknown_fields=True)
    expected = copy.deepcopy(shown)
    for flag in ("streaming", "push_notifications", "extended_agent_card"):
        setattr(expected.capabilities, flag, getattr(expected.capabilities, flag))
    for flow in [s.oauth2_security_scheme for s in expected.security_schemes.values()]:
        flow.SetInParent() if flow.ByteSize() else None
    assert read == expected


def test_the_merged_card_has_all_that_the_sdks_has(shown: AgentCard) -> None:
    ours, theirs = card_to_dict(shown), agent_card_to_dict(shown)
    assert ours["protocolVersion"] == "0.3.0"
    assert theirs.pop("protocolVersion") == "0.3"
    assert theirs["capabilities"]["extensions"][0].pop("required") is False
    assert missing(theirs, ours) == []


def missing(theirs: Any, ours: Any, path: str = "$") -> list[str]:
    """Where *ours* lacks, or says otherwise, what *theirs* says."""
    if isinstance(theirs, dict):
        return [
            place
            for key, value in theirs.items()
            for place in (
                missing(value, ours[key], f"{path}.{key}") if key in ours else [f"{path}.{key}"]
            )
        ]
    if isinstance(theirs, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return [p for i, (a, b) in pairs for p in missing(a, b, f"{path}[{i}]")]
    return [] if theirs == ours else [path]


def test_the_merged_card_tells_every_flag_and_the_annotations_of_the_srs(
    build: Build, rich: Registry
) -> None:
    result = card_to_dict(build(rich, capabilities=AgentCapabilities()))
    flags = {k: v for k, v in result["capabilities"].items() if k != "extensions"}
    assert flags == {
        "streaming": False,
        "pushNotifications": False,
        "stateTransitionHistory": False,
        "extendedAgentCard": False,
    }
    assert "supportsAuthenticatedExtendedCard" not in result
    look, order = result["skills"]
    assert look["extensions"]["apcore"]["annotations"]["readonly"] is True
    assert "extensions" not in order
    assert order["examples"] == []
    assert result["url"] == "http://localhost:8000/"
    assert result["preferredTransport"] == "JSONRPC"
    assert result["additionalInterfaces"] == [{"url": result["url"], "transport": "JSONRPC"}]
    assert ".0," not in json.dumps(result["capabilities"])


def test_a_card_of_protocol_1_alone_has_no_address_for_0_3(shown: AgentCard) -> None:
    del shown.supported_interfaces[1]
    del shown.capabilities.extensions[:]
    result = card_to_dict(shown)
    assert "url" not in result
    assert "extensions" not in result["skills"][0]


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer takes most of the time")
def test_a_card_of_a_hundred_modules_takes_at_most_100_ms(
    tmp_path: Path,
) -> None:
    registry = Registry(extensions_dir=str(tmp_path))
    for i in range(100):
        described = module_with(annotations=ModuleAnnotations(), input_schema=Item)
        registry.register(f"many.m{i}", described)

    def took() -> float:
        start = time.process_time()
        card = AgentCardBuilder(SkillMapper()).build(
            registry,
            name="",
            description="",
            version="",
            url="http://localhost/",
            capabilities=AgentCapabilities(),
        )
        assert len(card.skills) == 100
        return time.process_time() - start

    assert min(took() for _ in range(3)) <= 0.1
