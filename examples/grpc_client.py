"""gRPC client: run `python examples/grpc_client.py URL` for an agent served with `--grpc-port`.

Uses the client of the official SDK. Needs `pip install 'apcore-a2a[grpc]'`.
"""

import asyncio
import os
import sys

import grpc.aio
from a2a.client import Client, ClientCallContext, ClientConfig, create_client
from a2a.types import Message, Part, Role, SendMessageRequest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value


def new_request(text: str) -> SendMessageRequest:
    """Return a request that calls the skill `text.stats`."""
    data = Value()
    data.struct_value.update({"text": text})
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(data=data)])
    request = SendMessageRequest(message=message)
    request.metadata.update({"skillId": "text.stats"})
    return request


async def connect(url: str) -> Client:
    """Return a client that calls the agent at *url* over gRPC."""
    config = ClientConfig(
        grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=["GRPC"]
    )
    return await create_client(url, config)


async def main(url: str) -> None:
    """Send a message and print each event of its task."""
    # credentials are gRPC metadata, such as {"authorization": "Bearer …"}
    key = os.environ.get("API_KEY")
    context = ClientCallContext(service_parameters={"x-api-key": key} if key else {})
    async with await connect(url) as client:
        request = new_request("to be or not to be")
        async for event in client.send_message(request, context=context):
            print(MessageToDict(event))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
