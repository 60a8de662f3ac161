"""OpenAPI documents: the operations of a real HTTP API as skills."""

import gzip
import json
import logging
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from random import randbytes
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pytest
import yaml
from apcore_a2a_server import create_app
from apcore_a2a_server.modules import openapi_calls
from apcore_a2a_server.modules.importing import TargetError
from apcore_a2a_server.modules.openapi import load_api
from apcore_a2a_server.modules.openapi_document import Document, variable_of
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tests.serving import running

from .checking_client import Agent, Json
from .modules import Echo
from .test_serve import agent_with, card_of

ITEM = {"$ref": "#/components/schemas/Item"}
TEXT = {"type": "string"}


def ok_responses(schema: Any) -> Json:
    return {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}


def parameter(name: str, location: str, schema: Any = None, **members: Any) -> Json:
    is_required = location == "path"
    return {
        "name": name,
        "in": location,
        "required": is_required,
        "schema": schema or TEXT,
        **members,
    }


def body(schema: Any, media_type: str = "application/json") -> Json:
    return {"required": True, "content": {media_type: {"schema": schema}}}


PATHS: Json = {
    "/items": {
        "get": {
            "operationId": "listItems",
            "summary": "List the items",
            "tags": ["items"],
            "parameters": [
                parameter("tag", "query", {"type": "array", "items": TEXT}),
                parameter("filter", "query", {"type": "object"}, style="deepObject"),
                parameter("X-Trace", "header"),
                parameter("theme", "cookie"),
                {"$ref": "#/components/parameters/Limit"},
            ],
            "responses": ok_responses({"type": "array", "items": ITEM}),
        },
        "post": {
            "operationId": "createItem",
            "requestBody": body(ITEM),
            "responses": {"201": ok_responses(ITEM)["200"]},
        },
    },
    "/items/{id}": {
        "parameters": [parameter("id", "path")],
        "get": {"operationId": "getItem", "responses": ok_responses(ITEM)},
        "put": {
            "operationId": "putItem",
            "requestBody": body(ITEM),
            "responses": ok_responses(ITEM),
        },
        "delete": {"operationId": "deleteItem", "responses": {"204": {"description": "Gone"}}},
    },
    "/items/{id}/price": {
        "get": {
            "operationId": "getPrice",
            "parameters": [parameter("id", "path")],
            "responses": ok_responses({"type": "integer"}),
        }
    },
    "/sum": {
        "post": {
            "operationId": "sum",
            "requestBody": body({"type": "array", "items": {"type": "integer"}}),
            "responses": ok_responses({"type": "integer"}),
        }
    },
    "/form": {
        "post": {
            "operationId": "form",
            "requestBody": body(
                {"type": "object", "properties": {"a": TEXT, "b": {"type": "array"}}},
                "application/x-www-form-urlencoded",
            ),
            "responses": {"200": {"description": "OK"}},
        }
    },
    "/upload": {
        "post": {
            "operationId": "upload",
            "requestBody": {
                "required": True,
                "content": {
                    "multipart/form-data": {
                        "schema": {"$ref": "#/components/schemas/Upload"},
                        "encoding": {"pictures": {"contentType": "image/png"}},
                    }
                },
            },
            "responses": {"200": {"description": "OK"}},
        }
    },
    "/answer/{kind}": {
        "get": {
            "operationId": "answer",
            "parameters": [parameter("kind", "path")],
            "responses": {"200": {"description": "OK"}},
        }
    },
}
DOCUMENT: Json = {
    "openapi": "3.0.3",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "/{base}", "variables": {"base": {"default": "api"}}}],
    "paths": PATHS,
    "components": {
        "parameters": {"Limit": parameter("limit", "query", {"type": "integer"})},
        "schemas": {
            "Upload": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "pictures": {"type": "array", "items": {"contentMediaType": "image/*"}},
                    "encoded": {"type": "string", "format": "byte"},
                    "note": TEXT,
                    "place": {"type": "object"},
                },
            },
            "Item": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": TEXT,
                    "note": {"type": "string", "nullable": True},
                    "parts": {"type": "array", "items": ITEM},
                    "parent": {"allOf": [ITEM], "nullable": True},
                    "price": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
                },
            },
        },
    },
}


class Shop:
    """An HTTP API that has a document and records its requests."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.document = DOCUMENT
        self.redirect_target = "https://elsewhere.example/"
        paths = ("/items", "/items/{id}", "/sum", "/form", "/answer/{kind}", "/{other:path}")
        methods = ["GET", "POST", "PUT", "DELETE"]
        self.app = Starlette(
            routes=[
                Route("/docs/openapi.json", self.describe),
                *(Route(f"/api{path}", self.answer, methods=methods) for path in paths),
            ]
        )

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self.document)

    async def answer(self, request: Request) -> Response:
        content = await request.body()
        path = request.scope["raw_path"].decode().removeprefix("/api")
        self.requests.append(
            {
                "method": request.method,
                "path": path,
                "query": request.query_params.multi_items(),
                "headers": dict(request.headers),
                "body": content.decode(errors="replace"),
            }
        )
        item = {"id": 1, "name": "Nut", "note": None, "parent": None}
        if path == "/items":
            return JSONResponse([item]) if request.method == "GET" else JSONResponse(item, 201)
        if path == "/sum":
            return JSONResponse(sum(json.loads(content)))
        if request.method == "DELETE":
            return Response(status_code=204)
        return self.special_response(path.rpartition("/")[2]) or JSONResponse(item)

    def special_response(self, kind: str) -> Response | None:
        detail = [{"loc": ["query", "day"], "msg": "Field required"}]
        responses: dict[str, Any] = {
            "text": lambda: PlainTextResponse("plain"),
            "hex": lambda: Response("6a", media_type="text/plain; charset=hex"),
            "file": lambda: Response(b"\x89PNG", media_type="image/png"),
            "nothing": lambda: Response(status_code=204),
            "broken": lambda: Response(b"{", media_type="application/json"),
            "cookie": lambda: JSONResponse({}, headers={"Set-Cookie": "session=of-another"}),
            "missing": lambda: JSONResponse({"detail": "No such item"}, 404),
            "invalid": lambda: JSONResponse({"detail": detail}, 422),
            "echoing": lambda: JSONResponse({"message": "the key s3cret is slow\x1b[31m"}, 429),
            "escaped": self.escaped,
            "cut": lambda: JSONResponse({"message": f"{'x' * 297} s3cret"}, 400),
            "page": lambda: Response("<h1>Forbidden</h1>", 403, media_type="text/html"),
            "unknown": lambda: JSONResponse({"detail": "user admin-7 is expired"}, 401),
            "crash": lambda: PlainTextResponse("Traceback: db at 10.0.0.7", 503),
            "near": lambda: RedirectResponse("text"),
            "far": lambda: RedirectResponse(self.redirect_target),
            "circle": lambda: RedirectResponse("circle"),
            **{f"hop{n}": lambda n=n: RedirectResponse(f"hop{n - 1}") for n in range(2, 7)},
            "hop1": lambda: RedirectResponse("text"),
            "large": lambda: StreamingResponse(self.endless(), media_type="text/plain"),
            "zipped": lambda: Response(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}),
            "zipped-error": lambda: Response(
                gzip.compress(randbytes(100_000)), 400, {"Content-Encoding": "gzip"}
            ),
        }
        return responses[kind]() if kind in responses else None

    def escaped(self) -> Response:
        """Return an error with the key of the last request in several forms."""
        key = dict(self.requests[-1]["query"])["key"]
        query = urlencode({"key": key}, safe="/")
        in_json = json.dumps(key).replace("/", "\\/")
        return PlainTextResponse(f"{key} {query} {quote(key, safe='')} {in_json}", 400)

    async def endless(self) -> Any:
        for _ in range(100):
            yield b"x" * 1024


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def url(shop: Shop) -> Iterator[str]:
    with running(shop.app) as url:
        yield url


@pytest.fixture
def agent(url: str) -> Iterator[Agent]:
    with agent_with([NamedEcho()], openapi=f"{url}/docs/openapi.json") as agent:
        yield agent


class NamedEcho(Echo):
    """A module that is served in addition to those of the API."""

    module_id = "echo"


def call(agent: Agent, skill: str, **inputs: Any) -> Json:
    """Call a skill with data; return its task."""
    return agent.send(skill, {"data": inputs}).task


def output(task: Json) -> Any:
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    return task["artifacts"][0]["parts"][0]["data"]


def failure(task: Json) -> str:
    assert task["status"]["state"] == "TASK_STATE_FAILED", task["status"]
    message: str = task["status"]["message"]["parts"][0]["text"]
    return message


def skills_of(document: Json, tmp_path: Path, **changes: Any) -> Any:
    """Return the registry of a document in a file; *changes* replace members of the document."""
    file = tmp_path / "api.json"
    file.write_text(json.dumps({**document, **changes}))
    return load_api(file, "https://api.example")[0]


def document_with(operation: Json, path: str = "/x", **members: Any) -> Json:
    return {"openapi": "3.1.0", "paths": {path: {"post": operation}}, **members}


def test_operations_are_skills_next_to_those_of_modules(agent: Agent) -> None:
    skills = {skill["id"]: skill for skill in card_of(agent)["skills"]}

    assert {"echo", "list_items", "get_item", "delete_item"} < skills.keys()
    assert skills["list_items"]["description"] == "List the items"
    assert {"items", "readonly"} <= {*skills["list_items"]["tags"]}
    assert {"destructive", "requires-approval"} <= {*skills["delete_item"]["tags"]}


def test_an_agent_can_serve_nothing_but_an_api(url: str) -> None:
    app = create_app(openapi=f"{url}/docs/openapi.json")

    assert "get_item" in app.state.agent.setup.skills.list()


def test_parameters_are_sent_in_path_query_headers_and_cookies(agent: Agent, shop: Shop) -> None:
    inputs: Json = {"tag": ["a b", "ü&"], "filter": {"min": 1}, "X-Trace": "t", "limit": 5}
    task = call(agent, "list_items", **inputs, theme="dark; x=1")

    request = shop.requests[-1]
    assert request["query"] == [("tag", "a b"), ("tag", "ü&"), ("filter[min]", "1"), ("limit", "5")]
    assert (request["headers"]["x-trace"], request["headers"]["cookie"]) == (
        "t",
        "theme=dark%3B%20x%3D1",
    )
    assert output(task) == {"result": [{"id": 1, "name": "Nut", "note": None, "parent": None}]}


def test_members_of_a_body_are_inputs(agent: Agent, shop: Shop) -> None:
    assert output(call(agent, "create_item", name="Nut", parts=[{"name": "x"}]))["id"] == 1
    assert json.loads(shop.requests[-1]["body"]) == {"name": "Nut", "parts": [{"name": "x"}]}


def test_a_body_with_a_member_named_like_a_parameter_is_one_input(agent: Agent, shop: Shop) -> None:
    call(agent, "put_item", id="7", body={"id": 8, "name": "Nut"})

    request = shop.requests[-1]
    assert (request["method"], request["path"]) == ("PUT", "/items/7")
    assert json.loads(request["body"]) == {"id": 8, "name": "Nut"}


def test_a_body_that_is_a_list_is_one_input(agent: Agent) -> None:
    assert output(call(agent, "sum", body=[1, 2, 3])) == {"result": 6}


def test_forms_are_sent_as_forms(agent: Agent, shop: Shop) -> None:
    call(agent, "form", a="x y", b=[1, True])

    request = shop.requests[-1]
    assert request["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert request["body"] == "a=x+y&b=1&b=true"


def parts_of(request: Json) -> list[tuple[Any, ...]]:
    """Return name, file name, media type and content of each part of a multipart body."""
    head = f"Content-Type: {request['headers']['content-type']}\n\n"
    parts: Any = message_from_string(head + request["body"]).get_payload()
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part.get("content-type"),
            part.get_payload(),
        )
        for part in parts
    ]


def test_files_are_uploaded_in_parts(agent: Agent, shop: Shop) -> None:
    file, picture = b64encode(b"a,b").decode(), b64encode(b"PNG").decode()
    inputs = {"file": file, "pictures": [picture] * 2, "encoded": file}
    call(agent, "upload", **inputs, note="x y", place={"city": "Oslo"})
    assert parts_of(shop.requests[-1]) == [
        ("file", "file", "application/octet-stream", "a,b"),
        ("pictures", "pictures", "image/png", "PNG"),
        ("pictures", "pictures", "image/png", "PNG"),
        ("encoded", None, None, file),
        ("note", None, None, "x y"),
        ("place", None, "application/json", '{"city": "Oslo"}'),
    ]


def test_a_file_of_a_message_is_uploaded(agent: Agent, shop: Shop) -> None:
    raw = b64encode(b"a,b").decode()
    agent.send("upload", {"raw": raw, "mediaType": "text/csv", "filename": "a.csv"})
    assert parts_of(shop.requests[-1]) == [("file", "file", "application/octet-stream", "a,b")]


def test_an_upload_that_is_not_base64_is_refused(agent: Agent, shop: Shop) -> None:
    assert (
        failure(call(agent, "upload", file="no base64!"))
        == "Invalid input: file must be a file in base64"
    )
    assert shop.requests == []


@pytest.mark.parametrize("value", ["a b/c?d#e%2F;ü", "https://evil.example/", "...", "@evil"])
def test_a_path_parameter_is_encoded(agent: Agent, shop: Shop, value: str) -> None:
    call(agent, "get_item", id=value)

    assert re.fullmatch(r"/items/[\w.~%-]+", shop.requests[-1]["path"])
    assert unquote(shop.requests[-1]["path"]) == f"/items/{value}"


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", "a/../../admin", "..\\x", "..;x/y", "5/price"),
        *("5/price/", "5//price", "5/price;x", "5;x/price", "5\\price", ";x", "/"),
    ],
)
def test_a_path_parameter_does_not_lead_to_another_path(
    agent: Agent, shop: Shop, value: str
) -> None:
    assert "Invalid input" in failure(call(agent, "get_item", id=value))
    assert shop.requests == []


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "é"])
def test_a_header_may_hold_only_printable_ascii(agent: Agent, shop: Shop, value: str) -> None:
    assert "X-Trace" in failure(call(agent, "list_items", **{"X-Trace": value}))
    assert shop.requests == []


def test_wrong_inputs_are_refused_before_the_call(agent: Agent, shop: Shop) -> None:
    for inputs in ({}, {"name": 5}, {"name": "x", "price": 0}):
        assert agent.send("create_item", {"data": inputs}).code == -32602
    assert agent.send("list_items", {"data": {"unknown": 1}}).code == -32602
    assert shop.requests == []


def test_a_deletion_waits_for_approval(agent: Agent, shop: Shop) -> None:
    task = call(agent, "delete_item", id="7")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert shop.requests == []

    answer = agent.send(
        "delete_item", {"text": "yes"}, taskId=task["id"], contextId=task["contextId"]
    )
    assert answer.state == "completed"
    assert [(request["method"], request["path"]) for request in shop.requests] == [
        ("DELETE", "/items/7")
    ]


def test_the_credentials_of_callers_are_not_forwarded(agent: Agent, shop: Shop) -> None:
    agent.client.headers.update({"Authorization": "Bearer of-the-caller", "Cookie": "c=1"})
    call(agent, "list_items")

    assert not {"authorization", "cookie"} & shop.requests[-1]["headers"].keys()


def test_a_call_continues_the_trace_of_the_message(agent: Agent, shop: Shop) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    agent.client.headers.update(
        {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
    )
    call(agent, "list_items")

    headers = shop.requests[-1]["headers"]
    assert headers["traceparent"].split("-")[1] == trace
    assert headers["traceparent"].split("-")[2] != "00f067aa0ba902b7"
    assert headers["tracestate"] == "vendor=1"


def test_cookies_of_one_call_are_not_sent_with_the_next(agent: Agent, shop: Shop) -> None:
    call(agent, "answer", kind="cookie")
    call(agent, "answer", kind="text")

    assert "cookie" not in shop.requests[-1]["headers"]


def test_responses_that_are_not_json_are_text_or_files(agent: Agent) -> None:
    assert output(call(agent, "answer", kind="text")) == {"result": "plain"}
    assert call(agent, "answer", kind="nothing")["status"]["state"] == "TASK_STATE_COMPLETED"
    (part, *_) = call(agent, "answer", kind="file")["artifacts"][0]["parts"]
    assert (part["raw"], part["mediaType"]) == (b64encode(b"\x89PNG").decode(), "image/png")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "The API refused the call (404 Not Found): No such item"),
        (
            "invalid",
            "The API refused the call (422 Unprocessable Entity): query.day: Field required",
        ),
        ("page", "The API refused the call (403 Forbidden)"),
        ("zipped-error", "The API refused the call (400 Bad Request)"),
        ("unknown", "The API did not accept the agent's credentials (401 Unauthorized)"),
        ("crash", "The API failed (503 Service Unavailable)"),
        ("broken", "The response of the API is not valid JSON"),
        ("hex", "The response of the API is not valid text"),
        ("far", "The API redirects to another address (307 Temporary Redirect)"),
        ("circle", "The API redirects too often"),
        ("zipped", "The response of the API is compressed"),
    ],
)
def test_errors_of_the_api_fail_the_task(agent: Agent, kind: str, message: str) -> None:
    if sys.version_info >= (3, 13):
        message = message.replace("Unprocessable Entity", "Unprocessable Content")
    assert failure(call(agent, "answer", kind=kind)) == message


def test_redirects_are_followed_on_the_same_server(agent: Agent) -> None:
    for kind in ("near", f"hop{openapi_calls.MAX_REDIRECTS}"):
        assert output(call(agent, "answer", kind=kind)) == {"result": "plain"}
    error = failure(call(agent, "answer", kind=f"hop{openapi_calls.MAX_REDIRECTS + 1}"))
    assert error == "The API redirects too often"


def test_a_redirect_to_another_server_is_not_followed(agent: Agent, shop: Shop) -> None:
    other = Shop()
    with running(other.app) as url:
        shop.redirect_target = f"{url}/api/items"
        failure(call(agent, "answer", kind="far"))
    assert other.requests == []


def test_a_large_response_fails_the_task(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi_calls, "MAX_RESPONSE", 5000)
    message = "The response of the API has more than 5000 bytes"

    assert failure(call(agent, "answer", kind="large")) == message


def test_an_unreachable_api_fails_the_task(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT))
    with agent_with([], openapi=file, openapi_server="http://127.0.0.1:9") as agent:
        assert failure(call(agent, "list_items")) == "The API can't be reached"


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_documents_may_be_files(shop: Shop, url: str, tmp_path: Path, suffix: str) -> None:
    document = {**DOCUMENT, "servers": [{"url": f"{url}/api/"}], "x-since": "2026-01-01"}
    text = json.dumps(document) if suffix == "json" else yaml.safe_dump(document)
    file = tmp_path / f"api.{suffix}"
    # `200` and dates are not text in YAML
    file.write_text(text.replace("'200'", "200").replace("'2026-01-01'", "2026-01-01"))
    with agent_with([], openapi=file) as agent:
        assert output(call(agent, "get_item", id="1"))["name"] == "Nut"


def test_a_server_that_is_not_a_url_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps({**DOCUMENT, "servers": [{"url": "http://[x"}]}))

    with pytest.raises(TargetError, match=r"its server is http://\[x\n"):
        load_api(file, None)


def test_a_file_with_a_relative_server_needs_the_option_openapi_server(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(DOCUMENT))

    with pytest.raises(TargetError, match=r"its server is /api\n.*--openapi-server"):
        create_app([], openapi=str(file))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "neither JSON nor YAML: Expecting"),
        ("a: [", "neither JSON nor YAML"),
        ("- 1", "not an object"),
        ("hello: world", "no member openapi"),
        ("swagger: '2.0'", "version 3: version 2.0"),
        ("openapi: 3.1.0", "no paths"),
        ("openapi: 3.1.0\npaths: {}", "has no operations that can be served"),
        ("\x00", "neither JSON nor YAML"),
        ("&a [*a]", "neither JSON nor YAML"),
    ],
)
def test_a_broken_document_is_refused_with_the_reason(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text)

    with pytest.raises(TargetError, match=problem):
        load_api(file, None)


def test_a_document_that_cannot_be_read_is_refused_with_the_reason(
    url: str, tmp_path: Path
) -> None:
    for source, problem in (
        (f"{url}/nothing.json", "HTTP 404"),
        ("http://127.0.0.1:9/api.json", "can't be loaded: .*refused"),
        (str(tmp_path / "missing.yaml"), "No such file"),
        (str(tmp_path), "Is a directory"),
    ):
        with pytest.raises(TargetError, match=problem):
            load_api(source, None)


def test_references_may_have_escapes_and_indexes(tmp_path: Path) -> None:
    item = "#/paths/~1items~1%7Bid%7D"
    operation = {
        "operationId": "copyItem",
        "parameters": [{"$ref": f"{item}/parameters/0"}],
        "requestBody": {"$ref": f"{item}/put/requestBody"},
        "responses": {"200": {"description": "OK"}},
    }
    paths = {**PATHS, "/copies/{id}": {"put": operation}}
    copy_item = skills_of(DOCUMENT, tmp_path, paths=paths).get("copy_item")

    schema = copy_item.input_schema.model_json_schema()
    assert schema["properties"].keys() == {"id", "body"}


def test_a_body_that_may_be_anything_is_one_input(tmp_path: Path) -> None:
    schemas: list[Any] = [True, {}]
    for schema in schemas:
        skill = skills_of(document_with({"requestBody": body(schema)}), tmp_path).get("x.post")
        assert [*skill.input_schema.model_json_schema()["properties"]] == ["body"]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"parameters": [{"$ref": "#/paths/~1items/get/parameters/9"}]}, "points to nothing"),
        ({"requestBody": body({"$ref": "#/components/schemas/No"})}, "points to nothing"),
        ({"requestBody": body({"$ref": "other.yaml#/X"})}, "points outside of the document"),
        ({"requestBody": body({"$ref": "#/components/schemas/Me"})}, "has no end"),
        ({"requestBody": body(TEXT, "multipart/form-data")}, "multipart/form-data"),
        ({"parameters": [parameter("a", "query", style="matrix")]}, "style matrix"),
        ({"parameters": [parameter("a", "body")]}, "is in body"),
        ({"parameters": 5}, "the form that OpenAPI requires"),
        ({"security": [{"digest": []}]}, r"scheme digest \(http digest\) is not supported"),
        ({"security": [{"mtls": []}]}, r"scheme mtls \(mutualTLS\) is not supported"),
    ],
)
def test_operations_that_cannot_be_called_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: Json, problem: str
) -> None:
    components = {
        "schemas": {"Me": {"$ref": "#/components/schemas/Me"}},
        "securitySchemes": {
            "digest": {"type": "http", "scheme": "digest"},
            "mtls": {"type": "mutualTLS"},
        },
    }
    document = document_with(operation, components=components)
    document["paths"]["/good"] = {"get": {}}

    assert skills_of(document, tmp_path).list() == ["good.get"]
    (warning,) = caplog.messages
    assert warning.startswith("Not serving POST /x: ")
    assert re.search(problem, warning)


def test_an_unsupported_scheme_does_not_hide_a_supported_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemes = {**SCHEMES, "mtls": {"type": "mutualTLS"}}
    security: list[Any] = [{"mtls": []}, {"bearerAuth": []}]
    document = document_with({"security": security}, components={"securitySchemes": schemes})

    assert skills_of(document, tmp_path).list() == ["x.post"]
    monkeypatch.setenv(variable_of("bearerAuth"), "s3cret")
    assert skills_of(document, tmp_path).list() == ["x.post"]


@pytest.mark.parametrize(
    ("media_type", "sent_type"),
    [
        ("application/x-www-form-urlencoded; charset=utf-8", "application/x-www-form-urlencoded"),
        ("Multipart/Form-Data", "multipart/form-data"),
        ("application/json; version=2", "application/json; version=2"),
    ],
)
def test_the_media_type_of_a_body_may_have_parameters_and_capitals(
    media_type: str, sent_type: str
) -> None:
    schema = {"type": "object", "properties": {"a": TEXT}}
    document = document_with({"requestBody": body(schema, media_type)})
    operation, _, _ = Document(document, "", "https://api.example").operation("POST", "/x")

    assert operation.body is not None
    assert operation.body.media_type == sent_type


def test_a_path_without_its_parameter_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TargetError, match="no operations"):
        skills_of(document_with({}, "/x/{id}"), tmp_path)
    assert "the parameter id of the path is not declared" in caplog.text


def test_ids_that_apcore_would_refuse_are_changed(tmp_path: Path) -> None:
    paths: Json = {f"/{name}": {"get": {}} for name in ("schema", "system", "2fa")}

    ids = skills_of({"openapi": "3.1.0", "paths": paths}, tmp_path).list()
    assert ids == ["api.schema.get", "api.system.get", "n2fa.get"]


SCHEMES: Json = {
    "bearerAuth": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "inHeader": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "inQuery": {"type": "apiKey", "in": "query", "name": "key"},
    "inCookie": {"type": "apiKey", "in": "cookie", "name": "key"},
    "oauth": {"type": "oauth2", "flows": {}},
}


def require_credentials(shop: Shop, *security: Json) -> None:
    components = {**DOCUMENT["components"], "securitySchemes": SCHEMES}
    shop.document = {**DOCUMENT, "components": components, "security": [*security]}


@pytest.mark.parametrize(
    ("scheme", "value", "header", "expected"),
    [
        ("bearerAuth", "s3cret", "authorization", "Bearer s3cret"),
        ("oauth", "s3cret", "authorization", "Bearer s3cret"),
        ("basic", "me:s3cret", "authorization", "Basic bWU6czNjcmV0"),
        ("inHeader", "s3cret", "x-key", "s3cret"),
        ("inCookie", "s3cret", "cookie", "key=s3cret"),
        ("inQuery", "s3cret", None, "s3cret"),
    ],
)
@pytest.mark.parametrize("uses_general_variable", [True, False])
def test_the_credential_of_a_scheme_comes_from_the_environment(
    shop: Shop,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    value: str,
    header: str | None,
    expected: str,
    uses_general_variable: bool,
) -> None:
    require_credentials(shop, {scheme: []})
    variable = "APCORE_A2A_OPENAPI_TOKEN" if uses_general_variable else variable_of(scheme)
    monkeypatch.setenv(variable, value)
    with agent_with([], openapi=f"{url}/docs/openapi.json") as agent:
        call(agent, "list_items")
        request = shop.requests[-1]
        credential = request["headers"][header] if header else dict(request["query"])["key"]
        assert credential == expected

        message = failure(call(agent, "answer", kind="echoing"))
        assert message.endswith("(429 Too Many Requests): the key … is slow[31m")
        cut_message = failure(call(agent, "answer", kind="cut"))
        assert cut_message.endswith("xxx …")


def test_an_escaped_credential_is_in_no_message(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_credentials(shop, {"inQuery": []})
    monkeypatch.setenv("APCORE_A2A_OPENAPI_TOKEN", 'q7/9xZ+"top secret"==')
    with agent_with([], openapi=f"{url}/docs/openapi.json") as agent:
        message = failure(call(agent, "answer", kind="escaped"))
    assert message.endswith('(400 Bad Request): … key=… … "…"')


def test_an_alternative_whose_credentials_are_all_set_is_preferred(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_credentials(shop, {}, {"bearerAuth": [], "inHeader": []}, {"basic": []})
    monkeypatch.setenv(variable_of("inHeader"), "key")
    monkeypatch.setenv(variable_of("basic"), "me:pass")
    with agent_with([], openapi=f"{url}/docs/openapi.json") as agent:
        call(agent, "list_items")

    headers = shop.requests[-1]["headers"]
    assert headers["authorization"].startswith("Basic")
    assert "x-key" not in headers


def test_a_parameter_that_is_a_credential_is_not_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = {"parameters": [parameter("x-key", "header"), parameter("Authorization", "header")]}
    components = {"securitySchemes": SCHEMES}
    document = document_with(operation, components=components, security=[{"inHeader": []}])
    monkeypatch.setenv(variable_of("inHeader"), "key")

    definition = skills_of(document, tmp_path).get_definition("x.post")
    assert definition.input_schema["properties"] == {}


def test_missing_credentials_are_named_at_start(
    shop: Shop, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    require_credentials(shop, {"bearerAuth": [], "inHeader": []}, {"basic": []})
    load_api(f"{url}/docs/openapi.json", None)

    assert caplog.messages == [
        "The API requires credentials: set APCORE_A2A_OPENAPI_TOKEN_BEARERAUTH and "
        "APCORE_A2A_OPENAPI_TOKEN_INHEADER or APCORE_A2A_OPENAPI_TOKEN_BASIC "
        "(or APCORE_A2A_OPENAPI_TOKEN)"
    ]


def test_without_schemes_the_credential_is_a_bearer_token(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APCORE_A2A_OPENAPI_TOKEN", "s3cret")
    with agent_with([], openapi=f"{url}/docs/openapi.json") as agent:
        call(agent, "list_items")
    assert shop.requests[-1]["headers"]["authorization"] == "Bearer s3cret"


def test_credentials_and_inputs_are_not_in_the_log(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("apcore_a2a_server", "apcore_a2a", "httpx"):
        caplog.set_level(logging.DEBUG, logger=name)
    require_credentials(shop, {"inQuery": []})
    monkeypatch.setenv("APCORE_A2A_OPENAPI_TOKEN", "s3cret")
    with agent_with([], openapi=f"{url}/docs/openapi.json") as agent:
        for kind in ("crash", "unknown", "echoing", "near", "private-input"):
            call(agent, "answer", kind=kind)
    assert "HTTP Request: GET http://127.0.0.1:" in caplog.text
    assert not re.search("s3cret|private-input", caplog.text)


def test_a_credential_that_cannot_be_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APCORE_A2A_OPENAPI_TOKEN", "a\nb")
    with pytest.raises(TargetError, match="APCORE_A2A_OPENAPI_TOKEN must be printable ASCII"):
        skills_of(DOCUMENT, tmp_path)


def test_the_password_of_a_url_is_not_in_errors() -> None:
    with pytest.raises(TargetError) as raised:
        load_api("http://me:s3cret@127.0.0.1:9/api.json", None)
    assert "s3cret" not in str(raised.value)


def test_schemas_of_3_0_are_translated_and_recursive_ones_stay_references(tmp_path: Path) -> None:
    definition = skills_of(DOCUMENT, tmp_path).get_definition("get_item")
    schema = definition.output_schema

    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Item"}
    assert schema["properties"]["note"]["type"] == ["string", "null"]
    assert schema["$defs"]["Item"]["properties"]["price"]["exclusiveMinimum"] == 0


def test_without_the_toolkit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apcore_toolkit", None)
    monkeypatch.delitem(sys.modules, "apcore_a2a_server.modules.openapi")

    with pytest.raises(ImportError, match=re.escape("pip install 'apcore-a2a[openapi]'")):
        create_app([], openapi="api.yaml")
