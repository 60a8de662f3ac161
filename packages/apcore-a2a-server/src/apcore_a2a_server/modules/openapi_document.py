"""Operations in OpenAPI documents: their inputs, their outputs and the credentials they need."""

import logging
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from apcore_a2a_core import clean
from apcore_a2a_core.files import file_members
from apcore_a2a_core.media_types import BINARY
from apcore_a2a_core.values import is_array, is_object, object_at

from apcore_a2a_server.fields import OPENAPI_TOKEN

from .importing import TargetError
from .openapi_calls import (
    HEADER_VALUE,
    MULTIPART,
    PLACEHOLDER,
    Body,
    Credential,
    Operation,
    Parameter,
    is_json,
    path_pattern,
)
from .openapi_schemas import SUBSCHEMA_LISTS, SchemaConverter

logger = logging.getLogger("apcore_a2a_server")

MAX_REFERENCES = 32
"""Maximum length of a chain of references."""
DEFAULT_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
STYLES = frozenset({"simple", "form", "deepObject", "spaceDelimited", "pipeDelimited"})
IGNORED_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "transfer-encoding",
    }
)
"""Headers that are not parameters (OpenAPI 3.1 §4.8.12.2), or that describe the request itself."""
BODY_TYPES = ("application/x-www-form-urlencoded", MULTIPART, "text/plain")
"""Media types of request bodies in addition to JSON."""
ANY_TYPES = ("*/*", "application/*")

Json = dict[str, Any]


class DocumentError(ValueError):
    """A part of a document that can't be used."""


class Document:
    """An OpenAPI 3 document.

    Args:
        document: Its content.
        location: Its URL, or the path of its file.
        server: The base URL to use instead of those in the document.
    """

    def __init__(self, document: Json, location: str, server: str | None) -> None:
        self._document = document
        self._location = location
        self._server = server
        self.templates: list[str] = [*document["paths"]]
        self._schemes = self._security_schemes()
        self.missing_variables = set[str]()
        """The environment variables that operations need for credentials, but that are not set."""

    def operation(self, method: str, path: str) -> tuple[Operation, Json, Json]:
        """Return an operation, and the schemas of its input and of its output.

        Raises:
            DocumentError: It can't be called.
        """
        item = self.path_item(path)
        declared = self.resolve(item[method.lower()])
        credentials = self._credentials(declared)
        inputs = Inputs(self, {(each.location, each.name.lower()) for each in credentials})
        for parameter in self._parameters(item, declared):
            inputs.add_parameter(parameter)
        body = inputs.add_body(self.resolve(declared.get("requestBody") or {}))
        names = {each.name for each in inputs.parameters if each.location == "path"}
        if missing := {*PLACEHOLDER.findall(path)} - names:
            raise DocumentError(f"the parameter {min(missing)} of the path is not declared")
        output_schema, wraps_output = self._output(declared)
        operation = Operation(
            method=method,
            server=self._server or self._declared_server(declared, item),
            path=path,
            parameters=inputs.parameters,
            body=body,
            credentials=credentials,
            wraps_output=wraps_output,
            other_paths=self._other_paths(path),
        )
        return operation, inputs.schema(), output_schema

    def resolve(self, node: Any) -> Json:
        """Return an object of the document, after following references to it.

        Raises:
            DocumentError: There is no such object, or it is in another document.
        """
        for _ in range(MAX_REFERENCES):
            if not is_object(node):
                raise DocumentError("an object is expected")
            if not isinstance(reference := node.get("$ref"), str):
                return node
            node = self.at(reference)
        raise DocumentError("a reference has no end")

    def at(self, reference: str) -> Any:
        """Return the part of the document to which a reference points (RFC 6901).

        Raises:
            DocumentError: There is none.
        """
        if not reference.startswith("#/"):
            raise DocumentError(f"the reference {reference} points outside of the document")
        node: Any = self._document
        for key in reference[2:].split("/"):
            name = key.replace("~1", "/").replace("~0", "~")
            if not is_object(node) or name not in node:
                raise DocumentError(f"the reference {reference} points to nothing")
            node = node[name]
        return node

    def path_item(self, path: str) -> Json:
        """Return the path item, which has the operations of a path; empty if it is unusable."""
        item: Any = self._document["paths"][path]
        try:
            return self.resolve(item)
        except DocumentError as error:
            warn(path, str(error))
            return {}

    def _parameters(self, item: Json, declared: Json) -> Iterable[Json]:
        """Return the parameters of an operation, which replace those of its path."""
        parameters: dict[Any, Json] = {}
        for each in [*(item.get("parameters") or ()), *(declared.get("parameters") or ())]:
            parameter = self.resolve(each)
            parameters[parameter.get("in"), parameter.get("name")] = parameter
        return parameters.values()

    def _other_paths(self, path: str) -> Sequence[re.Pattern[str]]:
        """Return the patterns of other paths, except those of which this one is an example."""
        example = PLACEHOLDER.sub("-", path)
        patterns = [path_pattern(each) for each in self.templates if each != path]
        return [each for each in patterns if not each.fullmatch(example)]

    def _declared_server(self, *holders: Json) -> str:
        """Return the server of an operation: its own, or that of its path or the document.

        Raises:
            TargetError: It is relative, but the document is a file.
        """
        lists: list[Any] = [each.get("servers") for each in (*holders, self._document)]
        servers = [each for items in lists if is_array(items) for each in items if is_object(each)]
        server = servers[0] if servers else {}
        variables: Any = server.get("variables") or {}

        def default(match: re.Match[str]) -> str:
            variable = variables.get(match[1])
            return str(variable.get("default", "")) if is_object(variable) else match[0]

        declared = PLACEHOLDER.sub(default, str(server.get("url") or "/"))
        url = urljoin(self._location, declared)
        if not url.startswith(("http://", "https://")):
            raise TargetError(
                f"{label_of(self._location)} does not say at which host the API is: its server "
                f"is {clean(declared, 200)}\nSet openapi_server (--openapi-server), for example "
                "to https://api.example.com"
            )
        return url

    def _output(self, declared: Json) -> tuple[Json, bool]:
        """Return the schema of an output, and whether all outputs are `{"result": …}`."""
        responses: Any = declared.get("responses")
        schemas: list[Any] = []
        for status, response in responses.items() if is_object(responses) else ():
            if status.upper() == "2XX" or re.fullmatch("2[0-9]{2}", status):
                schemas.append(_json_schema(self.resolve(response)))
        if not schemas or None in schemas:  # an empty response, or one that is not JSON
            return {"type": "object"}, False
        converter = SchemaConverter(self.at, "writeOnly")
        is_wrapped = not all(self._describes_object(each) for each in schemas)
        converted = [converter.convert(each) for each in schemas]
        schema: Json = converted[0] if len(converted) == 1 else {"anyOf": converted}
        if is_wrapped:
            properties = {"result": schema}
            schema = {"type": "object", "properties": properties, "required": ["result"]}
        elif "$ref" in schema:
            schema = converter.definition(schema)
        return schema | converter.definitions(), is_wrapped

    def _describes_object(self, schema: Any, depth: int = 0) -> bool:
        """Return whether all values of a schema are certainly objects."""
        schema = self.resolve(schema) if is_object(schema) and depth < MAX_REFERENCES else {}
        if schema.get("nullable") is True:
            return False
        if "type" in schema:
            return bool(schema["type"] == "object")
        members: Any = schema.get("allOf", ())
        return "properties" in schema or any(
            self._describes_object(each, depth + 1) for each in members
        )

    def _security_schemes(self) -> Json:
        components: Any = self._document.get("components")
        schemes: Any = components.get("securitySchemes") if is_object(components) else None
        return schemes if is_object(schemes) else {}

    def _credentials(self, declared: Json) -> list[Credential]:
        """Return the credentials of the first alternative for which the environment has all."""
        if not self._schemes:
            token = _secret(OPENAPI_TOKEN)
            return [_bearer(token)] if token else []
        alternatives: Any = declared.get("security", self._document.get("security")) or [{}]
        missing: list[str] = []
        for alternative in sorted(filter(is_object, alternatives), key=lambda each: not each):
            by_scheme = {name: self._credential(name) for name in alternative}
            credentials = [each for each in by_scheme.values() if each is not None]
            if len(credentials) == len(by_scheme):
                return credentials
            names = [variable_of(name) for name, each in by_scheme.items() if each is None]
            missing.append(" and ".join(sorted(names)))
        if missing:
            self.missing_variables.add(f"{' or '.join(missing)} (or {OPENAPI_TOKEN})")
        return []

    def _credential(self, name: str) -> Credential | None:
        """Return the credential for a security scheme; None if the environment has none.

        Raises:
            DocumentError: The scheme is not supported.
        """
        scheme = self.resolve(self._schemes.get(name))
        kind, variant = str(scheme.get("type")), str(scheme.get("scheme", "")).lower()
        value = _secret(variable_of(name)) or _secret(OPENAPI_TOKEN)
        if kind == "apiKey" and scheme.get("in") in ("query", "header", "cookie"):
            key = str(scheme.get("name"))
            return Credential(scheme["in"], key, value, (value,)) if value else None
        if kind == "http" and variant == "basic":
            return _basic(value) if value else None
        if kind in ("oauth2", "openIdConnect") or (kind == "http" and variant == "bearer"):
            return _bearer(value) if value else None
        raise DocumentError(f"the security scheme {name} ({kind} {variant}) is not supported")


class Inputs:
    """The inputs of a module: the parameters of an operation, and its request body.

    Args:
        document: The document.
        hidden: The locations and names of parameters that are credentials of the agent.
    """

    def __init__(self, document: Document, hidden: set[tuple[str, str]]) -> None:
        self._document = document
        self._hidden = hidden
        self._converter = SchemaConverter(document.at, "readOnly")
        self._properties: Json = {}
        self._required: list[str] = []
        self._additional: Any = False
        self.parameters: list[Parameter] = []

    def schema(self) -> Json:
        """Return the JSON Schema of the inputs."""
        return {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
            "additionalProperties": self._additional,
            **self._converter.definitions(),
        }

    def add_parameter(self, declared: Json) -> None:
        """Add an input for a parameter, unless it is a header that does not count as one.

        Raises:
            DocumentError: It can't be sent.
        """
        location, name = str(declared.get("in")), str(declared.get("name"))
        is_header = location == "header" and name.lower() in IGNORED_HEADERS
        if is_header or (location, name.lower()) in self._hidden:
            return
        if location not in DEFAULT_STYLES:
            raise DocumentError(f"the parameter {name} is in {location}")
        style = str(declared.get("style", DEFAULT_STYLES[location]))
        if style not in STYLES:
            raise DocumentError(f"the style {style} of the parameter {name} is not supported")
        content: Any = declared.get("content")
        schema: Any = _json_schema(declared) if content else declared.get("schema")
        converted = self._converter.convert(schema or {})
        if is_object(converted) and "description" in declared:
            converted = {"description": declared["description"], **converted}
        explode = declared.get("explode", style == "form") is True
        input_name = self._add(name, location, converted, declared.get("required") is True)
        is_json_text = bool(content)
        parameter = Parameter(input_name, name, location, style, explode, is_json_text)
        self.parameters.append(parameter)

    def add_body(self, declared: Json) -> Body | None:
        """Add inputs for the request body: its members, or itself if it is not a plain object.

        Raises:
            DocumentError: It can't be sent.
        """
        content: Any = declared.get("content")
        if not is_object(content) or not content:
            return None
        is_required = declared.get("required") is True
        media_type = min(content, key=_preference)
        if _preference(media_type) > len(BODY_TYPES):
            if is_required:
                raise DocumentError(f"request bodies of {media_type} are not supported")
            return None
        schema: Any = content[media_type].get("schema") or {}
        self._document.resolve(schema)  # fails if its references never end
        converted = self._converter.convert(schema)
        media_type = "application/json" if media_type in ANY_TYPES else media_type
        plain = self._converter.definition(converted)
        properties = plain.get("properties")
        files = _files(plain, content[media_type]) if media_type == MULTIPART else {}
        if media_type == MULTIPART and not is_object(properties):
            raise DocumentError(f"a request body of {MULTIPART} must have properties")
        if (
            not is_object(properties)
            or plain.get("type", "object") != "object"
            or plain.keys() & SUBSCHEMA_LISTS
            or properties.keys() & self._properties.keys()
        ):
            name = self._add("body", "request", converted, is_required)
            return Body(media_type, name, True, files)
        self._properties |= properties
        self._required += plain.get("required", ()) if is_required else ()
        self._additional = plain.get("additionalProperties", True)
        return Body(media_type, None, is_required, files)

    def _add(self, name: str, location: str, schema: Any, is_required: bool) -> str:
        """Add an input; return its name, which differs from *name* if another input has it."""
        if name in self._properties:
            name = f"{location}_{name}"
        while name in self._properties:
            name += "_"
        self._properties[name] = schema
        if is_required:
            self._required.append(name)
        return name


def _files(schema: Json, content: Json) -> dict[str, str]:
    """Return the members of a multipart body that are sent as files, and their media types.

    The items of a list may be files too. Text that the API itself decodes is not a file.
    """
    single = {
        name: each.get("items", each) if is_object(each) else each
        for name, each in (object_at(schema, "properties") or {}).items()
    }
    plain = {name: each for name, each in single.items() if not _is_encoded(each)}
    files = file_members({"properties": plain})
    for name, media_type in files.items():
        encoding = object_at(content, "encoding", name) or {}
        declared = str(encoding.get("contentType", media_type))
        is_single_type = "*" not in declared and "," not in declared
        files[name] = declared if is_single_type else BINARY
    return files


def _is_encoded(schema: Any) -> bool:
    """Return whether values of a schema are sent in base64 (OpenAPI 3.0: the format `byte`)."""
    if not is_object(schema):
        return False
    branches: Any = schema.get("anyOf", ())
    is_here = "contentEncoding" in schema or schema.get("format") in ("byte", "base64")
    return is_here or any(map(_is_encoded, branches))


def _json_schema(holder: Mapping[str, Any]) -> Any:
    """Return the schema of the JSON that a response or a parameter has; None if it has none."""
    content: Any = holder.get("content")
    for media_type, each in content.items() if is_object(content) else ():
        if _preference(media_type) == 0 and is_object(each):
            return each.get("schema") or {}
    return None


def _preference(media_type: str) -> int:
    """Return the rank of a media type among those of request bodies; JSON comes first."""
    media_type = media_type.partition(";")[0].strip().lower()
    if is_json(media_type) or media_type in ANY_TYPES:
        return 0
    return [*BODY_TYPES, media_type].index(media_type) + 1


def warn(name: str, reason: str) -> None:
    """Log that an operation or a path is left out."""
    text = clean(f"{name}: {reason}", 500)
    logger.warning("Not serving %s", text, extra={"event": "operation_skipped"})


def label_of(location: str) -> str:
    """Return a path or URL for messages, without the password that a URL may have."""
    return clean(re.sub(r"(?<=://)[^/@]*@", "", location), 500)


def variable_of(scheme: str) -> str:
    """Return the environment variable with the credential for a security scheme.

    >>> variable_of("bearerAuth")
    'APCORE_A2A_OPENAPI_TOKEN_BEARERAUTH'
    """
    return f"{OPENAPI_TOKEN}_{re.sub(r'[^A-Za-z0-9]+', '_', scheme).upper()}"


def _secret(variable: str) -> str:
    """Return the credential in an environment variable; empty if there is none.

    Raises:
        TargetError: It can't be sent.
    """
    value = os.environ.get(variable, "").strip()
    if not HEADER_VALUE.fullmatch(value):
        raise TargetError(f"{variable} must be printable ASCII")
    return value


def _bearer(token: str) -> Credential:
    return Credential("header", "Authorization", f"Bearer {token}", (token,))


def _basic(value: str) -> Credential:
    """Return the credential for `user:password` (RFC 7617)."""
    encoded = b64encode(value.encode()).decode()
    secrets = (value, encoded, *filter(None, [value.partition(":")[2]]))
    return Credential("header", "Authorization", f"Basic {encoded}", secrets)
