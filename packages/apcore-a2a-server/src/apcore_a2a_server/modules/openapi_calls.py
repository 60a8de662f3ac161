"""Calls to an HTTP API: requests made from a module's inputs, and outputs made from responses."""

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlencode

import httpx
import msgspec
from apcore import InvalidInputError, ModuleError
from apcore.trace_context import TraceContext
from apcore_a2a_core import clean
from apcore_a2a_core.authoring import File
from apcore_a2a_core.values import is_array, is_object

from .openapi_paths import PLACEHOLDER, plain_path

MAX_RESPONSE = 10 * 1024 * 1024  # bytes
MAX_ERROR = 64 * 1024
"""Maximum number of bytes of an error response's body that are used."""
MAX_MESSAGE = 300
"""Maximum length in characters of the API's message in an error that clients see."""
TIMEOUT = httpx.Timeout(60, connect=10)
"""Maximum seconds without progress; the execution timeout limits the whole call."""
MAX_REDIRECTS = 5
HEADERS = {
    "Accept": "application/json, */*;q=0.5",
    # A small compressed response can be decompressed into one that fills the memory.
    "Accept-Encoding": "identity",
    "User-Agent": "apcore-a2a",
}
MULTIPART = "multipart/form-data"
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}
MESSAGE_MEMBERS = ("detail", "message", "error_description", "error", "title", "errors", "msg")
"""Members with which APIs explain errors in JSON; `detail` and `title` are from RFC 9457."""
CREDENTIALS_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)

Json = dict[str, Any]
Pairs = list[tuple[str, str]]


class ApiRefusedError(ModuleError):
    """The API refuses a call (HTTP 4xx except 401 and 407); the agent's client sees the message."""

    def __init__(self, message: str) -> None:
        super().__init__("API_REFUSED", message)


class ApiFailedError(ModuleError):
    """The API can't be reached or gives no usable response; the agent's client sees the message."""

    def __init__(self, message: str) -> None:
        super().__init__("API_FAILED", message)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation.

    Attributes:
        input: The name of the module's input that has the value.
        name: The parameter's name in the API.
        location: Where it is sent: path, query, header or cookie.
        style: The `style` of OpenAPI, which says how arrays and objects are written.
        explode: The `explode` of OpenAPI, which changes how arrays and objects are written.
        is_json: Whether its value is written as JSON.
    """

    input: str
    name: str
    location: str
    style: str
    explode: bool
    is_json: bool


@dataclass(frozen=True, slots=True)
class Body:
    """The request body of an operation.

    Attributes:
        media_type: Its media type.
        input: The name of the input that is the body; None if all inputs that are not
            parameters are members of the body.
        is_required: If *input* is None, whether the body is sent even if it has no members.
        files: In a body of `multipart/form-data`, the media types of the members that are files.
    """

    media_type: str
    input: str | None
    is_required: bool
    files: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential of the agent for the API.

    Attributes:
        location: Where it is sent: query, header or cookie.
        name: The name of the parameter.
        value: Its value.
        secrets: The texts that must not appear in messages.
    """

    location: str
    name: str
    value: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of an API.

    Attributes:
        method: The HTTP method.
        server: The base URL of the API.
        path: The path below the base URL, with placeholders such as `{id}`.
        parameters: The parameters.
        body: The request body; None if there is none.
        credentials: The credentials of the agent.
        wraps_output: Whether JSON objects, like other JSON values, become `{"result": …}`.
        other_paths: Patterns of the API's other paths, without the parts that `plain_path` removes.
            Inputs must not lead to these paths.
    """

    method: str
    server: str
    path: str
    parameters: Sequence[Parameter]
    body: Body | None
    credentials: Sequence[Credential]
    wraps_output: bool
    other_paths: Sequence[re.Pattern[str]]

    def request(self, inputs: Mapping[str, Any]) -> Json:
        """Return the request for these inputs, as arguments of `httpx.Client.build_request`.

        Raises:
            InvalidInputError: An input can't be sent.
        """
        values: dict[str, Pairs] = {"path": [], "query": [], "header": [], "cookie": []}
        for parameter in self.parameters:
            value = inputs.get(parameter.input)
            if value is not None:
                values[parameter.location] += _pairs(parameter, value)
        for credential in self.credentials:
            values[credential.location].append((credential.name, credential.value))
        headers = {**HEADERS, **dict(_headers(values["header"]))}
        if values["cookie"]:
            headers["Cookie"] = "; ".join(
                f"{name}={quote(text, safe='')}" for name, text in values["cookie"]
            )
        url = self.server.rstrip("/") + self._path(dict(values["path"]))
        request: Json = {"method": self.method, "url": url, "headers": headers}
        value = self._body_value(inputs)
        if self.body is not None and self.body.media_type == MULTIPART:
            request["files"] = [*_multipart(value, self.body.files)]
        elif self.body is not None and value is not None:
            headers["Content-Type"] = self.body.media_type
            request["content"] = _encode_body(value, self.body.media_type)
        return request | ({"params": values["query"]} if values["query"] else {})

    def _path(self, values: Mapping[str, str]) -> str:
        """Return the path with these values.

        Many servers decode a path before they look for its operation, so an encoded slash acts as a
        slash: `/items/{id}` with the id `5/secrets` could become `/items/{id}/secrets`. The ids
        `5/secrets/` and `5/secrets;x` do the same on servers that ignore what `plain_path` removes.

        Raises:
            InvalidInputError: A value is empty, or leads to another path.
        """
        if empty := [name for name in PLACEHOLDER.findall(self.path) if not values.get(name)]:
            raise InvalidInputError(f"{empty[0]} must not be empty")
        path = PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), self.path)
        decoded = unquote(path)
        plain = plain_path(decoded)
        segments = [*re.split(r"[/\\]", decoded), *plain.split("/")]
        has_dot_segments = any(part in (".", "..") for part in segments)
        if has_dot_segments or any(other.fullmatch(plain) for other in self.other_paths):
            raise InvalidInputError("A parameter of the path must not lead to another path")
        return path

    def _body_value(self, inputs: Mapping[str, Any]) -> Any:
        """Return the body for these inputs, before it is encoded; None if there is none."""
        if self.body is None:
            return None
        if self.body.input is not None:
            return inputs.get(self.body.input)
        parameter_inputs = {parameter.input for parameter in self.parameters}
        value: Any = {
            name: member for name, member in inputs.items() if name not in parameter_inputs
        }
        return value if value or self.body.is_required else None

    def output(self, response: httpx.Response, body: bytes) -> Json:
        """Return the output of the module for a response.

        Raises:
            ApiRefusedError: The API refuses the call.
            ApiFailedError: The API fails, or its response can't be used.
        """
        status = response.status_code
        if not response.is_success:
            raise self._error(status, body)
        if not body:
            return {}
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not is_json(media_type):
            if media_type.startswith("text/") or media_type.endswith(("/xml", "+xml")):
                try:
                    return {"result": body.decode(response.encoding or "utf-8", "replace")}
                except (LookupError, ValueError):  # a codec of Python that is not for text
                    raise ApiFailedError("The response of the API is not valid text") from None
            return {"result": File(body, media_type=media_type)}
        try:
            value = msgspec.json.decode(body)
        except (ValueError, RecursionError):
            raise ApiFailedError("The response of the API is not valid JSON") from None
        return value if is_object(value) and not self.wraps_output else {"result": value}

    def _error(self, status: int, body: bytes) -> ModuleError:
        phrase = f"{status} {HTTPStatus(status).phrase}" if status in {*HTTPStatus} else str(status)
        if status in CREDENTIALS_REFUSED:
            return ApiFailedError(f"The API did not accept the agent's credentials ({phrase})")
        if 400 <= status < 500:
            secrets = [secret for credential in self.credentials for secret in credential.secrets]
            message = message_of(body, _spellings_of(secrets))
            colon = ": " if message else ""
            return ApiRefusedError(f"The API refused the call ({phrase}){colon}{message}")
        if 300 <= status < 400:
            return ApiFailedError(f"The API redirects to another address ({phrase})")
        return ApiFailedError(f"The API failed ({phrase})")


class PrivateURL(httpx.URL):
    """A URL whose text ends after the host: httpx logs URLs, and paths or queries may be secret."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc.decode()}/…"

    __repr__ = __str__

    def join(self, url: httpx.URL | str) -> httpx.URL:
        """Return the address of a redirect; httpx's own `join` would use the shortened text."""
        return httpx.URL(self).join(url)


class ApiConnections:
    """The connections to an API, which its modules share."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(
        self, operation: Operation, inputs: Mapping[str, Any], trace: Mapping[str, str]
    ) -> Json:
        """Call an operation; return the output of its module.

        Args:
            operation: The operation.
            inputs: The inputs of its module.
            trace: Headers that continue the trace of the call. Parameters of the operation with
                the same names take precedence.

        Raises:
            InvalidInputError: An input can't be sent.
            ApiRefusedError: The API refuses the call.
            ApiFailedError: The API can't be reached, or gives no usable response.
        """
        request = operation.request(inputs)
        header_names = {name.lower() for name in request["headers"]}
        trace_headers = {name: value for name, value in trace.items() if name not in header_names}
        request["headers"] = {**trace_headers, **request["headers"]}
        try:
            response, body = await self._send(request)
        except httpx.TimeoutException as error:
            raise ApiFailedError("The API did not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ApiFailedError("The API can't be reached") from error
        return operation.output(response, body)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _send(self, arguments: Json) -> tuple[httpx.Response, bytes]:
        """Send a request; follow redirects to the same server."""
        client = self._client_of_loop()
        request = client.build_request(**arguments)
        for _ in range(1 + MAX_REDIRECTS):
            request.url = PrivateURL(request.url)
            response = await client.send(request, stream=True)
            try:
                body = await _read(response)
            finally:
                await response.aclose()
            next_request = response.next_request
            if next_request is None or _origin(next_request.url) != _origin(request.url):
                return response, body
            request = next_request
        raise ApiFailedError("The API redirects too often")

    def _client_of_loop(self) -> httpx.AsyncClient:
        """Return the HTTP client of the running event loop; each loop needs its own connections."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # Cookies that the API sets for one caller must not be sent in calls for another.
            cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self._client, self._loop = httpx.AsyncClient(timeout=TIMEOUT, cookies=cookies), loop
        return self._client


class ApiModule:
    """A module that calls an operation of an API.

    Args:
        api: The connections to the API.
        operation: The operation.
        attributes: The attributes of a module that apcore reads, such as `description`.
    """

    description: str
    input_schema: Any
    output_schema: Any

    def __init__(self, api: ApiConnections, operation: Operation, **attributes: Any) -> None:
        self._api = api
        self._operation = operation
        for name, value in attributes.items():
            setattr(self, name, value)

    async def execute(self, inputs: Json, context: Any) -> Json:
        """Call the operation."""
        return await self._api.call(self._operation, inputs, TraceContext.inject(context))


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON (RFC 6839).

    >>> is_json("application/problem+json")
    True
    """
    return media_type == "application/json" or media_type.endswith("+json")


def _spellings_of(secrets: Iterable[str]) -> list[str]:
    """Return secrets, plain and escaped, as they may appear in messages; the longest come first."""
    spellings: set[str] = set()
    for secret in secrets:
        in_json = json.dumps(secret)[1:-1]
        spellings |= {secret, in_json, in_json.replace("/", r"\/")}
        spellings |= {encode(secret, safe) for encode in (quote, quote_plus) for safe in ("", "/")}
    return sorted(spellings, key=len, reverse=True)


def message_of(body: bytes, secrets: Iterable[str] = ()) -> str:
    """Return the message in an error's body as clients may see it: short, and without *secrets*.

    >>> message_of(b'{"detail": [{"loc": ["query", "day"], "msg": "Field required"}]}')
    'query.day: Field required'
    """
    try:
        text = "; ".join(_messages(msgspec.json.decode(body)))
    except (ValueError, RecursionError):
        text = body.decode(errors="replace").strip()
        text = "" if text.startswith("<") else text.partition("\n")[0]
    for secret in secrets:  # before the text is shortened, which could leave a part of a secret
        text = text.replace(secret, "…")
    return clean(text, MAX_MESSAGE)


def _messages(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_array(value):
        for item in value[:5]:
            yield from _messages(item)
    elif is_object(value):
        member = next((name for name in MESSAGE_MEMBERS if value.get(name)), None)
        if member is not None:
            location = value.get("loc")
            prefix = f"{'.'.join(map(str, location))}: " if is_array(location) else ""
            yield from (prefix + message for message in _messages(value[member]))


async def _read(response: httpx.Response) -> bytes:
    """Return a response's body; for an error, only its start, or nothing if it is compressed.

    Raises:
        ApiFailedError: The body of a successful response is compressed, or too large.
    """
    body = bytearray()
    is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
    async for chunk in response.aiter_raw():
        body += chunk
        if not response.is_success and len(body) > MAX_ERROR:
            break
        if len(body) > MAX_RESPONSE:
            raise ApiFailedError(f"The response of the API has more than {MAX_RESPONSE} bytes")
    if not response.is_success:
        return b"" if is_compressed else bytes(body[:MAX_ERROR])
    if body and is_compressed:
        raise ApiFailedError("The response of the API is compressed")
    return bytes(body)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _headers(pairs: Pairs) -> Iterator[tuple[str, str]]:
    for name, value in pairs:
        if not HEADER_VALUE.fullmatch(value):
            raise InvalidInputError(f"{name} must be printable ASCII, because it is a header")
        yield name, value.strip()


def _pairs(parameter: Parameter, value: Any) -> Pairs:
    """Return a parameter as names and values, in the parameter's style."""
    name, is_query = parameter.name, parameter.location == "query"
    if parameter.is_json:
        return [(name, json.dumps(value, ensure_ascii=False))]
    if is_object(value):
        members = [(key, _text(member)) for key, member in value.items() if member is not None]
        if parameter.style == "deepObject":
            return [(f"{name}[{key}]", text) for key, text in members]
        if parameter.explode and is_query:
            return members
        separator = "=" if parameter.explode else ","
        return [(name, ",".join(f"{key}{separator}{text}" for key, text in members))]
    if is_array(value):
        texts = [_text(item) for item in value]
        if parameter.explode and is_query:
            return [(name, text) for text in texts]
        return [(name, DELIMITERS.get(parameter.style, ",").join(texts))]
    return [(name, _text(value))]


def _encode_body(value: Any, media_type: str) -> bytes:
    if media_type == "application/x-www-form-urlencoded":
        return urlencode([*_form_fields(value)]).encode()
    if media_type.startswith("text/"):
        return _text(value).encode()
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _multipart(value: Any, files: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object as parts: (name, (file name, content, media type)).

    The file name is the member's name, because many APIs treat parts without a file name as text.

    Raises:
        InvalidInputError: A file is not in base64.
    """
    for name, member in value.items() if is_object(value) else ():
        for item in member if is_array(member) else [member]:
            if item is None:
                continue
            if name in files:
                yield name, (name, _bytes_of(name, item), files[name])
            elif is_object(item):
                yield name, (None, _text(item), "application/json")
            else:
                yield name, (None, _text(item))


def _bytes_of(name: str, content: Any) -> bytes:
    try:
        return b64decode(content, validate=True)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be a file in base64") from None


def _form_fields(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the members of an object as fields of a form."""
    for name, member in value.items() if is_object(value) else ():
        for item in member if is_array(member) else [member]:
            if item is not None:
                yield name, _text(item)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
