"""A second client of the agent that the page shows."""

from typing import Any
from uuid import uuid4

import httpx

from tests.serving import PATIENCE


class OtherClient:
    """Client of an agent, over A2A 1.0."""

    def __init__(self, agent: str, key: str = "") -> None:
        headers = {"A2A-Version": "1.0", **({"X-API-Key": key} if key else {})}
        self._http = httpx.Client(
            base_url=agent, headers=headers, trust_env=False, timeout=PATIENCE
        )

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, **params: Any) -> Any:
        """Call a method; return its result."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._http.post("/", json=request).json()
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, part: dict[str, Any], skill: str = "", **members: Any) -> Any:
        """Send a message; return its task."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part], **members}
        metadata = {"skillId": skill} if skill else {}
        return self.call("SendMessage", message=message, metadata=metadata)["task"]
