"""An agent that speaks gRPC in the test's own event loop, the SDK's client, and a bare stub."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

import grpc.aio
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from apcore_a2a_server.app.options import ServeSettings, Settings
from apcore_a2a_server.app.serve import grpc_server
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # no py.typed

from tests.serving import PATIENCE

from .inloop import Peer, serving

LOOPBACK = "127.0.0.1"
APP_OPTIONS = {field.name for field in fields(Settings)}


@dataclass(frozen=True)
class Caller:
    """A caller of an agent over gRPC.

    Attributes:
        client: The SDK's client; its sends are streams.
        blocking: A client of the SDK that waits for its tasks.
        stub: The generated methods, without a client.
        peer: A client of the same agent over HTTP.
        address: The address of the agent.
        channel: The connection.
        metadata: The metadata of `send`, `start` and `get`. Calls of `client` must pass
            `context`, and calls of `stub` must pass `pairs`.
    """

    client: Client
    blocking: Client
    stub: Any
    peer: Peer
    address: str
    channel: Any
    metadata: Mapping[str, str]

    @property
    def context(self) -> ClientCallContext:
        return ClientCallContext(service_parameters=dict(self.metadata))

    async def send(self, skill: str = "work", **data: Any) -> pb.Task:
        """Send a message with the stub, wait for its task and return it."""
        response = await self.stub.SendMessage(request_for(skill, **data), metadata=self.pairs)
        task: pb.Task = response.task
        return task

    async def start(self, skill: str, **data: Any) -> pb.Task:
        """Send a message with the stub, and return its task at once."""
        request = request_for(skill, **data)
        request.configuration.return_immediately = True
        task: pb.Task = (await self.stub.SendMessage(request, metadata=self.pairs)).task
        return task

    async def get(self, task_id: str) -> pb.Task:
        request = pb.GetTaskRequest(id=task_id)
        task: pb.Task = await self.stub.GetTask(request, metadata=self.pairs)
        return task

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The metadata in the form that gRPC takes."""
        return [*self.metadata.items()]


@asynccontextmanager
async def serving_grpc(
    source: Any, metadata: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Caller]:
    """Serve *source* over HTTP and gRPC in this event loop, and yield a caller.

    Args:
        source: Modules by their ids, or any other source of `create_app`.
        metadata: The metadata of the caller.
        options: For `serve`.
    """
    shared = {name: value for name, value in options.items() if name in APP_OPTIONS}
    # the card is built before the port is known; callers connect to `address`
    async with serving(source, **shared, grpc_url=f"{LOOPBACK}:1") as peer:
        settings = ServeSettings(**options, grpc_port=0)
        server = grpc_server(peer.agent, settings)
        address = f"{LOOPBACK}:{server.bind(f'{LOOPBACK}:0')}"
        await server.start()
        try:
            async with connected_caller(peer, address, metadata or {}) as caller:
                yield caller
        finally:
            await server.stop(PATIENCE)


@asynccontextmanager
async def connected_caller(
    peer: Peer, address: str, metadata: Mapping[str, str], *options: tuple[str, int]
) -> AsyncIterator[Caller]:
    """Yield a caller with a connection of its own."""
    own_pool = ("grpc.use_local_subchannel_pool", 1)
    async with grpc.aio.insecure_channel(address, [own_pool, *options]) as channel:
        card = await A2ACardResolver(peer.client, str(peer.client.base_url)).get_agent_card()
        streaming, blocking = (
            ClientFactory(
                ClientConfig(
                    streaming=streams,
                    grpc_channel_factory=lambda url: channel,
                    httpx_client=peer.client,
                    supported_protocol_bindings=["GRPC"],
                )
            ).create(card)
            for streams in (True, False)
        )
        make_stub: Any = A2AServiceStub
        yield Caller(streaming, blocking, make_stub(channel), peer, address, channel, metadata)


def request_for(skill: str = "work", **data: Any) -> pb.SendMessageRequest:
    """Return a request that sends *data* to a skill."""
    request = pb.SendMessageRequest()
    request.metadata.update({"skillId": skill})
    request.message.message_id = "m1"
    request.message.role = pb.ROLE_USER
    content = request.message.parts.add().data.struct_value
    content.SetInParent()  # even if it is empty
    content.update(data)
    return request


def status_of(error: grpc.aio.AioRpcError) -> Status:
    """Return the `google.rpc.Status` in the trailing metadata of an error."""
    trailing = dict(error.trailing_metadata() or ())
    return Status.FromString(trailing["grpc-status-details-bin"])


def details_of(error: grpc.aio.AioRpcError, kind: Any) -> list[Any]:
    """Return the details of an error that are of this type."""
    details: list[Any] = []
    for detail in status_of(error).details:
        if detail.Is(kind.DESCRIPTOR):
            details.append(kind())
            detail.Unpack(details[-1])
    return details
