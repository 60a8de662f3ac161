"""The JSON-RPC requests that a page sends."""

from typing import Any

from playwright.sync_api import Page, Request

Json = dict[str, Any]


def is_poll(request: Json) -> bool:
    """Return whether a request polls for tasks that have changed."""
    params = request["params"]
    return "statusTimestampAfter" in params or 1 in (params.get("pageSize"), params.get("limit"))


class PostedRequests:
    """The requests that a page posts from now on, except for its polls for changed tasks."""

    def __init__(self, page: Page) -> None:
        self.requests: list[Json] = []
        page.on("request", self._on_request)

    def _on_request(self, request: Request) -> None:
        if request.method == "POST":
            body: Any = request.post_data_json
            if not is_poll(body):
                self.requests.append(body)

    def methods(self) -> list[str]:
        """Return the names of the methods, in order."""
        return [request["method"] for request in self.requests]

    def message_params(self) -> list[Json]:
        """Return the parameters of the sent messages, in either version of the protocol."""
        return [
            request["params"] for request in self.requests if "message" in request["method"].lower()
        ]

    def data(self) -> Any:
        """Return the data of the only part of the only message."""
        (params,) = self.message_params()
        (part,) = params["message"]["parts"]
        return part["data"]
