"""Operations in OpenAPI documents: their inputs, their outputs and the credentials they need."""

import logging
import operator
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urljoin

from apcore_a2a_core import clean
from apcore_a2a_core.files import file_properties
from apcore_a2a_core.media_types import BINARY
from apcore_a2a_core.values import is_array, is_object, object_at

from apcore_a2a_server.fields import OPENAPI_TOKEN

from .importing import TargetError
from .openapi_calls import (
    HEADER_VALUE,
    MULTIPART,
    Body,
    Credential,
    Operation,
    Parameter,
    is_json,
)
from .openapi_paths import PLACEHOLDER, path_pattern, plain_path
from .openapi_schemas import SUBSCHEMA_LISTS, OpenAPISchemaConverter

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
    """A part of the document can't be used."""


class Document:
    """An OpenAPI 3 document.

    Args:
        document: Its content.
        location: Its URL, or the path of its file.
        server: The base URL of the API; None for the servers that the document declares.
    """

    def __init__(self, document: Json, location: str, server: str | None) -> None:
        self._document = document
        self._location = location
        self._server = server
        self.templates: list[str] = [*document["paths"]]
        """The document's paths, with placeholders such as `{id}`."""
        self._schemes = self._security_schemes()
        self.missing_variables = set[str]()
        """Texts that name the unset environment variables for the credentials of operations."""

    def operation(self, method: str, path: str) -> tuple[Operation, Json, Json]:
        """Return an operation, and the schemas of its input and of its output.

        Raises:
            DocumentError: The operation can't be called.
            TargetError: The server's URL can't be used, or a credential can't be sent.
        """
        path_item = self.path_item(path)
        declaration = self.resolve(path_item[method.lower()])
        credentials = self._credentials(declaration)
        inputs = Inputs(self, {(item.location, item.name.lower()) for item in credentials})
        for parameter in self._parameters(path_item, declaration):
            inputs.add_parameter(parameter)
        body = inputs.add_body(self.resolve(declaration.get("requestBody") or {}))
        path_names = {item.name for item in inputs.parameters if item.location == "path"}
        if missing := {*PLACEHOLDER.findall(path)} - path_names:
            raise DocumentError(f"the parameter {min(missing)} of the path is not declared")
        output_schema, wraps_output = self._output(declaration)
        operation = Operation(
            method=method,
            server=self._server or self._declared_server(declaration, path_item),
            path=path,
            parameters=inputs.parameters,
            body=body,
            credentials=credentials,
            wraps_output=wraps_output,
            other_paths=self._other_paths(path),
        )
        return operation, inputs.schema(), output_schema

    def resolve(self, node: Any) -> Json:
        """Return *node*, or the object to which its references lead.

        Raises:
            DocumentError: There is no such object, it is in another document, or the references
                never end.
        """
        for _ in range(MAX_REFERENCES):
            if not is_object(node):
                raise DocumentError("an object is expected")
            if not isinstance(reference := node.get("$ref"), str):
                return node
            node = self.at(reference)
        raise DocumentError("a chain of references has no end")

    def at(self, reference: str) -> Any:
        """Return the part of the document to which a reference points (RFC 6901).

        Raises:
            DocumentError: There is no such part.
        """
        if not reference.startswith("#/"):
            raise DocumentError(f"the reference {reference} points outside of the document")
        node: Any = self._document
        for key in reference[2:].split("/"):
            name = unquote(key).replace("~1", "/").replace("~0", "~")
            if is_array(node) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            elif is_object(node) and name in node:
                node = node[name]
            else:
                raise DocumentError(f"the reference {reference} points to nothing")
        return node

    def path_item(self, path: str) -> Json:
        """Return the path item, which has the operations of a path; empty if it is unusable."""
        item: Any = self._document["paths"][path]
        try:
            return self.resolve(item)
        except DocumentError as error:
            warn(path, str(error))
            return {}

    def _parameters(self, item: Json, declaration: Json) -> Iterable[Json]:
        """Return the parameters of a path, replaced or extended by those of an operation."""
        parameters: dict[Any, Json] = {}
        for node in [*(item.get("parameters") or ()), *(declaration.get("parameters") or ())]:
            parameter = self.resolve(node)
            parameters[parameter.get("in"), parameter.get("name")] = parameter
        return parameters.values()

    def _other_paths(self, path: str) -> Sequence[re.Pattern[str]]:
        """Return the patterns of the other paths, except those that match this path too."""
        example = plain_path(PLACEHOLDER.sub("-", path))
        others = [plain_path(other) for other in self.templates if other != path]
        patterns = [path_pattern(other) for other in others]
        return [pattern for pattern in patterns if not pattern.fullmatch(example)]

    def _declared_server(self, *holders: Json) -> str:
        """Return the URL of the first server that the operation, its path or the document declares.

        Raises:
            TargetError: The URL is not HTTP, or is relative to a file.
        """
        lists: list[Any] = [holder.get("servers") for holder in (*holders, self._document)]
        items = [item for values in lists if is_array(values) for item in values]
        servers = [item for item in items if is_object(item)]
        server = servers[0] if servers else {}
        variables: Any = server.get("variables") or {}

        def default(match: re.Match[str]) -> str:
            variable = variables.get(match[1])
            return str(variable.get("default", "")) if is_object(variable) else match[0]

        declared_url = PLACEHOLDER.sub(default, str(server.get("url") or "/"))
        try:
            url = urljoin(self._location, declared_url)
        except ValueError:  # an invalid IPv6 address
            url = ""
        if not url.startswith(("http://", "https://")):
            raise TargetError(
                f"{label_of(self._location)} does not say at which host the API is: its server "
                f"is {clean(declared_url, 200)}\nSet openapi_server (--openapi-server), for "
                "example to https://api.example.com"
            )
        return url

    def _output(self, declaration: Json) -> tuple[Json, bool]:
        """Return the schema of an output, and whether the output becomes `{"result": …}`."""
        responses: Any = declaration.get("responses")
        schemas: list[Any] = []
        for status, response in responses.items() if is_object(responses) else ():
            if status.upper() == "2XX" or re.fullmatch("2[0-9]{2}", status):
                schemas.append(_json_schema(self.resolve(response)))
        if not schemas or None in schemas:  # no 2xx response, or one without JSON
            return {"type": "object"}, False
        converter = OpenAPISchemaConverter(self.at, "writeOnly")
        is_wrapped = not all(map(self._describes_object, schemas))
        converted = [*map(converter.convert, schemas)]
        schema: Json = converted[0] if len(converted) == 1 else {"anyOf": converted}
        if is_wrapped:
            properties = {"result": schema}
            schema = {"type": "object", "properties": properties, "required": ["result"]}
        elif "$ref" in schema:
            schema = converter.resolve(schema)
        return schema | converter.definitions(), is_wrapped

    def _describes_object(self, schema: Any, depth: int = 0) -> bool:
        """Return whether a schema describes only objects, by its type, properties or `allOf`."""
        schema = self.resolve(schema) if is_object(schema) and depth < MAX_REFERENCES else {}
        if schema.get("nullable") is True:
            return False
        if "type" in schema:
            return bool(schema["type"] == "object")
        subschemas: Any = schema.get("allOf", ())
        return "properties" in schema or any(
            self._describes_object(subschema, depth + 1) for subschema in subschemas
        )

    def _security_schemes(self) -> Json:
        components: Any = self._document.get("components")
        schemes: Any = components.get("securitySchemes") if is_object(components) else None
        return schemes if is_object(schemes) else {}

    def _credentials(self, declaration: Json) -> list[Credential]:
        """Return the credentials of the first security requirement whose credentials are all set.

        If the document has no security schemes, the value of `APCORE_A2A_OPENAPI_TOKEN`, if set,
        is sent as a bearer token.

        Raises:
            DocumentError: Every requirement has a scheme that is not declared or not supported.
            TargetError: A credential can't be sent.
        """
        if not self._schemes:
            token = _secret(OPENAPI_TOKEN)
            return [_bearer(token)] if token else []
        requirements: Any = declaration.get("security", self._document.get("security")) or [{}]
        missing: list[str] = []
        unsupported: DocumentError | None = None
        # a requirement without credentials comes last
        for requirement in sorted(filter(is_object, requirements), key=operator.not_):
            try:
                by_scheme = {name: self._credential(name) for name in requirement}
            except DocumentError as error:
                unsupported = unsupported or error
                continue
            credentials = [item for item in by_scheme.values() if item is not None]
            if len(credentials) == len(by_scheme):
                return credentials
            variables = [variable_of(name) for name, item in by_scheme.items() if item is None]
            missing.append(" and ".join(sorted(variables)))
        if missing:
            self.missing_variables.add(f"{' or '.join(missing)} (or {OPENAPI_TOKEN})")
        elif unsupported:
            raise unsupported
        return []

    def _credential(self, name: str) -> Credential | None:
        """Return the credential for a security scheme; None if the environment has none.

        Raises:
            DocumentError: The scheme is not declared, or not supported.
            TargetError: The credential can't be sent.
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
        full_kind = f"{kind} {variant}".strip()
        raise DocumentError(f"the security scheme {name} ({full_kind}) is not supported")


class Inputs:
    """The inputs of a module: the parameters of an operation, and its request body.

    Args:
        document: The document.
        hidden: The locations and lowercase names of parameters that are credentials of the agent.
    """

    def __init__(self, document: Document, hidden: set[tuple[str, str]]) -> None:
        self._document = document
        self._hidden = hidden
        self._converter = OpenAPISchemaConverter(document.at, "readOnly")
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

    def add_parameter(self, declaration: Json) -> None:
        """Add an input for a parameter, unless it is in `IGNORED_HEADERS` or is a credential.

        Raises:
            DocumentError: The parameter can't be sent.
        """
        location, name = str(declaration.get("in")), str(declaration.get("name"))
        is_ignored_header = location == "header" and name.lower() in IGNORED_HEADERS
        if is_ignored_header or (location, name.lower()) in self._hidden:
            return
        if location not in DEFAULT_STYLES:
            raise DocumentError(f"the parameter {name} is in {location}, which is not supported")
        style = str(declaration.get("style", DEFAULT_STYLES[location]))
        if style not in STYLES:
            raise DocumentError(f"the style {style} of the parameter {name} is not supported")
        content: Any = declaration.get("content")
        schema: Any = _json_schema(declaration) if content else declaration.get("schema")
        converted = self._converter.convert(schema or {})
        if is_object(converted) and "description" in declaration:
            converted = {"description": declaration["description"], **converted}
        explode = declaration.get("explode", style == "form") is True
        input_name = self._add(name, location, converted, declaration.get("required") is True)
        is_json_text = bool(content)
        parameter = Parameter(input_name, name, location, style, explode, is_json_text)
        self.parameters.append(parameter)

    def add_body(self, declaration: Json) -> Body | None:
        """Add inputs for the members of the request body, or one input for the whole body.

        Returns:
            The body; None if there is none, or if it is optional and not supported.

        Raises:
            DocumentError: The body can't be sent.
        """
        content: Any = declaration.get("content")
        if not is_object(content) or not content:
            return None
        is_required = declaration.get("required") is True
        media_type = min(content, key=_rank)
        if _rank(media_type) > len(BODY_TYPES):
            if is_required:
                raise DocumentError(f"request bodies of {media_type} are not supported")
            return None
        media_type_object: Any = content[media_type]
        schema: Any = media_type_object.get("schema") or {}
        schema = {} if schema is True else schema  # both allow any value (JSON Schema 2020-12)
        self._document.resolve(schema)  # fails if its references never end
        converted = self._converter.convert(schema)
        plain_type = _plain_type(media_type)
        if plain_type in (*BODY_TYPES, *ANY_TYPES):
            media_type = "application/json" if plain_type in ANY_TYPES else plain_type
        body_schema = self._converter.resolve(converted)
        properties = body_schema.get("properties")
        files = _files(body_schema, media_type_object) if media_type == MULTIPART else {}
        if media_type == MULTIPART and not is_object(properties):
            raise DocumentError(f"a request body of {MULTIPART} must have properties")
        if (
            not is_object(properties)
            or body_schema.get("type", "object") != "object"
            or body_schema.keys() & SUBSCHEMA_LISTS
            or properties.keys() & self._properties.keys()
        ):
            name = self._add("body", "request", converted, is_required)
            return Body(media_type, name, True, files)
        self._properties |= properties
        self._required += body_schema.get("required", ()) if is_required else ()
        self._additional = body_schema.get("additionalProperties", True)
        return Body(media_type, None, is_required, files)

    def _add(self, name: str, location: str, schema: Any, is_required: bool) -> str:
        """Add an input; return its name, which differs from *name* if that is taken."""
        if name in self._properties:
            name = f"{location}_{name}"
        while name in self._properties:
            name += "_"
        self._properties[name] = schema
        if is_required:
            self._required.append(name)
        return name


def _files(schema: Json, media_type_object: Json) -> dict[str, str]:
    """Return the members of a multipart body that are sent as files, and their media types.

    The items of a list may be files too. A member whose schema asks for base64 is not a file: its
    base64 is sent as text, which the API itself decodes.
    """
    item_schemas = {
        name: member.get("items", member) if is_object(member) else member
        for name, member in (object_at(schema, "properties") or {}).items()
    }
    unencoded = {name: item for name, item in item_schemas.items() if not _is_encoded(item)}
    files = file_properties({"properties": unencoded})
    for name, media_type in files.items():
        encoding = object_at(media_type_object, "encoding", name) or {}
        declared_type = str(encoding.get("contentType", media_type))
        is_single_type = "*" not in declared_type and "," not in declared_type
        files[name] = declared_type if is_single_type else BINARY
    return files


def _is_encoded(schema: Any) -> bool:
    """Return whether values of a schema are sent in base64 (OpenAPI 3.0: the format `byte`)."""
    if not is_object(schema):
        return False
    branches: Any = schema.get("anyOf", ())
    is_encoded = "contentEncoding" in schema or schema.get("format") in ("byte", "base64")
    return is_encoded or any(map(_is_encoded, branches))


def _json_schema(holder: Mapping[str, Any]) -> Any:
    """Return the schema of the JSON content of a response or parameter; None without JSON."""
    content: Any = holder.get("content")
    for media_type, value in content.items() if is_object(content) else ():
        if _rank(media_type) == 0 and is_object(value):
            return value.get("schema") or {}
    return None


def _rank(media_type: str) -> int:
    """Rank a media type: 0 for JSON and `ANY_TYPES`, then `BODY_TYPES`, then all others."""
    media_type = _plain_type(media_type)
    if is_json(media_type) or media_type in ANY_TYPES:
        return 0
    return [*BODY_TYPES, media_type].index(media_type) + 1


def _plain_type(media_type: str) -> str:
    """Return a media type in lowercase, without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def warn(name: str, reason: str) -> None:
    """Log that an operation or a path is left out."""
    text = clean(f"{name}: {reason}", 500)
    logger.warning("Not serving %s", text, extra={"event": "operation_skipped"})


def label_of(location: str) -> str:
    """Return a path or URL for messages, without the credentials that a URL may have."""
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
        TargetError: The credential can't be sent.
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
