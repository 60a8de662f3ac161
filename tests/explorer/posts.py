"""What a page really sends: the JSON-RPC requests on its wire."""

from typing import Any

from playwright.sync_api import Page, Request

Json = dict[str, Any]


class Wire:
    """The requests that a page posts, from now on."""

    def __init__(self, page: Page) -> None:
        self.posted: list[Json] = []
        page.on("request", self._on_request)

    def _on_request(self, request: Request) -> None:
        if request.method == "POST":
            body: Any = request.post_data_json
            self.posted.append(body)

    def methods(self) -> list[str]:
        """The names of the methods, in their order."""
        return [request["method"] for request in self.posted]

    def sent(self) -> list[Json]:
        """The parameters of the messages."""
        return [each["params"] for each in self.posted if "essage" in each["method"]]

    def data(self) -> Any:
        """The data of the one message, whose only part it is."""
        (params,) = self.sent()
        (part,) = params["message"]["parts"]
        return part["data"]
