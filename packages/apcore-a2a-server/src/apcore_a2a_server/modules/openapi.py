"""OpenAPI documents, whose operations become modules.

apcore-toolkit names and describes the operations. Its schemas leave out headers and the parameters
that a path has for all its operations, and they expand references, even recursive ones. Therefore,
`openapi_document` makes the schemas.
"""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import apcore
import httpx
import yaml
from apcore.registry import RESERVED_WORDS
from apcore_a2a_core import clean
from apcore_a2a_core.values import is_object
from apcore_toolkit import OpenAPIScanner, derive_module_id

from .importing import TargetError
from .loading import reason_of
from .openapi_calls import ApiConnections, ApiModule
from .openapi_document import Document, DocumentError, label_of, warn

logger = logging.getLogger("apcore_a2a_server")

METHODS = ("get", "put", "post", "delete", "patch")
MAX_DOCUMENT = 32 * 1024 * 1024  # bytes of a download
DOCUMENT_TIMEOUT = 30.0
"""Seconds without progress after which the download of a document fails."""
Json = dict[str, Any]


def load_api(source: str | os.PathLike[str], server: str | None) -> tuple[Any, ApiConnections]:
    """Return a registry with a module for each operation of an API, and the API's connections.

    Operations that can't be called are left out, with a warning.

    Args:
        source: The path or URL of an OpenAPI 3 document, in JSON or YAML.
        server: The base URL of the API; None for the one that the document names.

    Raises:
        TargetError: The document can't be read, has no operations that can be called, or does not
            say where the API is; or a credential can't be sent.
    """
    location, data = _read(os.fspath(source))
    label = label_of(location)
    document = Document(_parse(data, label), location, server)
    api, registry = ApiConnections(), apcore.Registry()
    for method, path, scanned in _operations(document):
        try:
            operation, input_schema, output_schema = document.operation(method, path)
            module = ApiModule(
                api,
                operation,
                description=scanned.description or scanned.target,
                documentation=scanned.documentation,
                tags=scanned.tags,
                annotations=_annotations(scanned),
                input_schema=input_schema,
                output_schema=output_schema,
            )
            registry.register(scanned.module_id, module)
        except (DocumentError, apcore.ModuleError) as error:
            reason = str(error) if isinstance(error, DocumentError) else reason_of(error)
            warn(scanned.target, reason)
        except (AttributeError, TypeError, RecursionError):  # a broken document can have any values
            warn(scanned.target, "its description does not have the form that OpenAPI requires")
    if not registry.list():
        raise TargetError(f"{label} has no operations that can be served")
    for variables in sorted(document.missing_variables):
        extra = {"event": "api_credentials_missing"}
        logger.warning("The API requires credentials: set %s", variables, extra=extra)
    return registry, api


def _annotations(scanned: Any) -> Any:
    """Return the toolkit's annotations; destructive operations also require approval."""
    annotations = scanned.annotations
    return replace(annotations, requires_approval=True) if annotations.destructive else annotations


def _read(source: str) -> tuple[str, bytes]:
    """Return the location of a document, after redirects, and its bytes.

    Raises:
        TargetError: The document can't be read.
    """
    if not source.startswith(("http://", "https://")):
        try:
            return source, Path(source).expanduser().read_bytes()
        # `~` with an unknown user raises RuntimeError; a NUL raises ValueError
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TargetError(f"The OpenAPI document {clean(source, 500)}: {reason}") from None
    problem = f"The OpenAPI document {label_of(source)} can't be loaded"
    data = bytearray()
    try:
        with (
            httpx.Client(follow_redirects=True, timeout=DOCUMENT_TIMEOUT) as client,
            client.stream("GET", source) as response,
        ):
            if response.status_code != HTTPStatus.OK:
                raise TargetError(f"{problem}: HTTP {response.status_code}")
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > MAX_DOCUMENT:
                    raise TargetError(f"{problem}: it has more than {MAX_DOCUMENT} bytes")
            return str(response.url), bytes(data)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TargetError(f"{problem}: {clean(str(error) or type(error).__name__)}") from None


def _parse(data: bytes, label: str) -> Json:
    """Return a document as plain JSON: YAML also has dates, and keys that are not text.

    Raises:
        TargetError: The text is not an OpenAPI 3 document.
    """
    problem = f"{label} is not an OpenAPI document"
    try:
        text = data.decode("utf-8-sig")
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is faster
        is_object_text = text.lstrip().startswith("{")
        parsed: Any = json.loads(text) if is_object_text else yaml.load(text, loader)  # safe
        document: Any = json.loads(json.dumps(parsed, default=str))
    except (TypeError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = clean(" ".join(str(error).split()), 300)
        raise TargetError(f"{problem}: neither JSON nor YAML: {reason}") from None
    if not is_object(document):
        raise TargetError(f"{problem}: its content is not an object")
    if not str(document.get("openapi", "")).startswith("3."):
        version = document.get("openapi", document.get("swagger"))
        actual = "it has no member openapi" if version is None else f"version {clean(str(version))}"
        raise TargetError(f"{problem} of version 3: {actual}")
    if not is_object(document.get("paths")):
        raise TargetError(f"{problem}: it has no paths")
    return document


def _operations(document: Document) -> Iterator[tuple[str, str, Any]]:
    """Yield method, path and apcore-toolkit's description of each operation."""
    paths = {
        path: {
            method: _description_members(operation)
            for method, operation in document.path_item(path).items()
            if method in METHODS
        }
        for path in document.templates
    }
    # Only names and descriptions: schemas and servers have been left out.
    outline: Json = {"openapi": "3.1.0", "info": {}, "paths": paths}
    for scanned in OpenAPIScanner().scan(outline, derive_module_id=_module_id):
        yield scanned.metadata["http_method"], scanned.metadata["url_path"], scanned


def _description_members(operation: Any) -> Any:
    """Return the members of an operation that name and describe it."""
    members = ("operationId", "summary", "description", "tags", "deprecated")
    if not is_object(operation):
        return operation
    return {name: operation[name] for name in members if name in operation}


def _module_id(path: str, method: str, operation: Json) -> str:
    """Return the toolkit's id of an operation, changed if apcore would refuse it."""
    names = derive_module_id(path, method, operation).split(".")
    prefix = ["api"] if names[0] in RESERVED_WORDS else []
    return ".".join(prefix + [f"n{name}" if name[0].isdigit() else name for name in names])
