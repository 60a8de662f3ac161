"""The JSON-RPC requests that a page sends."""

from typing import Any

from playwright.sync_api import Page, Request

Json = dict[str, Any]


class PostedRequests:
    """The requests that a page posts from now on."""

    def __init__(self, page: Page) -> None:
        self.posted: list[Json] = []
        page.on("request", self._on_request)

    def _on_request(self, request: Request) -> None:
        if request.method == "POST":
            body: Any = request.post_data_json
            self.posted.append(body)

    def methods(self) -> list[str]:
        """Return the names of the methods, in order."""
        return [request["method"] for request in self.posted]

    def sent(self) -> list[Json]:
        """Return the parameters of the messages, sent by either version of the protocol."""
        return [each["params"] for each in self.posted if "message" in each["method"].lower()]

    def data(self) -> Any:
        """Return the data of the only part of the only message."""
        (params,) = self.sent()
        (part,) = params["message"]["parts"]
        return part["data"]
