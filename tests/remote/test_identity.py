"""Identities and conversations across agents: what is passed on, and what is not."""

from typing import Any

import pytest
from apcore import ACL, Executor, Identity, Registry
from apcore.acl import ACLRule
from apcore.errors import ACLDeniedError
from apcore_a2a_client import CardRefusedError, TaskFailedError
from apcore_a2a_remote import RemoteAgent, RemoteFailedError

from tests.server.inloop import ActionModule, app_of, echo, listening, registry_of
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .agents import chain, serving

pytestmark = pytest.mark.anyio


class Tokens:
    """An authenticator whose tokens are names."""

    def authenticate(self, headers: Any) -> Identity | None:
        scheme, _, name = headers.get("authorization", "").partition(" ")
        return Identity(name, roles=("admin",) if name == "ada" else ()) if scheme else None


def recording_module(seen: list[Any]) -> ActionModule:
    async def work(inputs: Inputs, context: Any) -> Any:
        caller = context.identity and context.identity.id
        seen.append((caller, context.services.context_id, len(context.services.history)))
        return {"seen": len(context.services.history)}

    return ActionModule(work)


async def test_forward_sends_the_identity_of_the_caller_to_the_agent() -> None:
    seen: list[Any] = []

    def forward(context: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {context.identity.id}-by-gateway"}

    async with serving({"work": recording_module(seen)}, auth=Tokens()) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True, forward=forward)
        async with serving({}, agent, auth=Tokens()) as gateway:
            headers = {"authorization": "Bearer ann"}
            await gateway.client.call("remote.c.work", {}, headers=headers)
    assert [caller for caller, _, _ in seen] == ["ann-by-gateway"]


async def test_the_callers_own_token_is_never_passed_on() -> None:
    seen: list[Any] = []
    async with serving({"work": recording_module(seen)}, auth=Tokens()) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True, auth="Bearer gateway")
        async with serving({}, agent, auth=Tokens()) as gateway:
            headers = {"authorization": "Bearer ann"}
            await gateway.client.call("remote.c.work", {}, headers=headers)
    assert [caller for caller, _, _ in seen] == ["gateway"]


async def test_callers_with_the_same_context_id_have_different_conversations() -> None:
    seen: list[Any] = []
    async with serving({"work": recording_module(seen)}) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True)
        async with serving({}, agent, auth=Tokens()) as gateway:
            for name in ("ann", "ann", "eve"):
                headers = {"authorization": f"Bearer {name}"}
                await gateway.client.call("remote.c.work", {}, context_id="shared", headers=headers)
    contexts = [context_id for _, context_id, _ in seen]
    assert contexts[0] == contexts[1] != contexts[2]
    assert "shared" not in contexts
    assert [length for _, _, length in seen] == [0, 1, 0]


async def test_the_history_of_the_conversation_can_be_read_at_the_agent() -> None:
    histories: list[Any] = []

    async def outer(inputs: Inputs, context: Any) -> Any:
        output = await context.executor.call_async("remote.c.work", inputs, context)
        histories.append(await agents["c"].history(context, 5))
        return output

    agents: dict[str, RemoteAgent] = {}
    async with serving({"work": ActionModule(echo)}) as remote:
        agents["c"] = RemoteAgent(remote.url, name="c")
        async with serving({"outer": ActionModule(outer)}, agents["c"]) as gateway:
            for number in range(2):
                await gateway.client.call("outer", {"n": number}, context_id="talk")
    assert [message.value for message in histories[-1]] == [{"n": 0}, {"n": 1}]


def rules(*denied: str) -> ACL:
    return ACL(
        [
            *(ACLRule(callers=["*"], targets=[name], effect="deny") for name in denied),
            ACLRule(callers=["*"], targets=["*"], effect="allow"),
        ]
    )


async def test_a_remote_agent_applies_its_own_rules() -> None:
    registry = registry_of({"work": ActionModule(echo), "admin": ActionModule(echo)})
    denying_executor = Executor(registry, acl=rules("admin"))
    async with listening(app_of(denying_executor, url=None)) as url:
        agent = RemoteAgent(url, name="c", expose=True)
        gateway_registry = Registry()
        app = app_of(
            Executor(gateway_registry, acl=rules("remote.c.none")), url=None, companions=[agent]
        )
        async with listening(app) as gateway_url, RemoteAgent(gateway_url, name="g") as gateway:
            own_registry = Registry()
            # the card of the agent does not show skills that the gateway may not call
            assert await gateway.register(own_registry) == ["remote.g.c.work"]
            executor = Executor(own_registry)
            assert await executor.call_async("remote.g.c.work", {"a": 1}) == {"a": 1}
            denying_executor.set_acl(rules("work"))
            with pytest.raises(TaskFailedError):
                await gateway.client.call("remote.c.work", {})
            with pytest.raises((ACLDeniedError, RemoteFailedError)):
                await executor.call_async("remote.g.c.work", {})


async def test_calls_of_a_gateway_without_credentials_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving({"work": ActionModule(echo)}, auth=Tokens()) as remote:
        async with RemoteAgent(remote.url, name="c", auth="Bearer gateway") as agent:
            assert await agent.register(Registry()) == ["remote.c.work"]
        async with RemoteAgent(remote.url, name="c") as anonymous:
            registry = Registry()
            await anonymous.register(registry)
            module_ids = registry.list(visibility=["hidden"])
            assert module_ids
            for module_id in module_ids:
                with pytest.raises(RemoteFailedError):
                    await Executor(registry).call_async(module_id, {})
                assert "A2AAuthError" in caplog.text


@pytest.mark.parametrize("trust", ["require", "warn"])
async def test_a_card_that_is_not_trusted_is_refused_or_logged(
    trust: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(card: dict[str, Any]) -> None:
        raise ValueError(f"{card['name']} has the wrong key")

    async with (
        serving({"work": ActionModule(echo)}) as remote,
        RemoteAgent(remote.url, name="c", trust=trust, verify_card=refuse) as agent,
    ):
        if trust == "require":
            with pytest.raises(CardRefusedError, match="wrong key"):
                await agent.register(Registry())
        else:
            assert await agent.register(Registry()) == ["remote.c.work"]
    events = [getattr(record, "event", "") for record in caplog.records]
    assert ("remote_card_untrusted" in events) == (trust == "warn")


async def test_a_removed_skill_two_agents_away_is_not_found() -> None:
    async with chain({"work": ActionModule(echo)}, "bc") as agents:
        agents[2].registry.unregister("work")
        with pytest.raises(TaskFailedError, match="Skill not found"):
            await agents[0].client.call("remote.b.c.work", {})
