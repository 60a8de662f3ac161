"""Somebody else who asks the same agent, at the same time."""

from typing import Any
from uuid import uuid4

import httpx

from tests.serving import PATIENCE


class Other:
    """Asks an agent in A2A 1.0."""

    def __init__(self, agent: str) -> None:
        headers = {"A2A-Version": "1.0"}
        self._http = httpx.Client(
            base_url=agent, headers=headers, trust_env=False, timeout=PATIENCE
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a call."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._http.post("/", json=call).json()
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, part: dict[str, Any], skill: str = "", **members: Any) -> Any:
        """Send a message; its task."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part], **members}
        metadata = {"skillId": skill} if skill else {}
        return self.ask("SendMessage", message=message, metadata=metadata)["task"]
