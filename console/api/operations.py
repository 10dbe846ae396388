"""Operations of the API: each is a route with its role and an entry of the OpenAPI document, so that none can miss another."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flask import jsonify, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import BadRequest

from common.config.definitions import FamilyDefinition, GroupDefinition, TopicDefinition
from common.config.setting import described, table_of
from console.roles import Role
from console.routes import Route, add

PREFIX = "/api/v1"
Handler = Callable[..., Any]
TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
ANY: dict[str, Any] = {"type": "object"}
TEXTS = {"type": "array", "items": TEXT}


class Operation(NamedTuple):
    """One operation: `query` and `body` name its parameters with their schemas."""

    method: str
    path: str
    role: Role
    name: str
    summary: str
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    required: Sequence[str]


OPERATIONS: list[Operation] = []


def operation(
    method: str, path: str, role: Role, summary: str, query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None, required: Sequence[str] = (),
) -> Callable[[Handler], Handler]:  # fmt: skip
    """Register a function whose result is the JSON answer."""

    def register(handler: Handler) -> Handler:
        name = handler.__name__
        OPERATIONS.append(Operation(method, path, role, name, summary, query or {}, body or {}, required))
        route = re.sub(r"\{(\w+_id)\}", r"<int:\1>", path).replace("{", "<").replace("}", ">")

        def answer(**arguments: Any) -> ResponseReturnValue:
            return jsonify(handler(**arguments))

        add(Route(PREFIX + route, method, role, f"api.{name}", answer))
        return handler

    return register


def body() -> dict[str, Any]:
    """The request's JSON object. Raises BadRequest."""
    try:
        value = request.get_json(silent=True)
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise BadRequest("Send a JSON object, with Content-Type: application/json.")
    return value


def text_of(value: Mapping[str, Any], name: str, default: str = "") -> str:
    """A text of the body. Raises BadRequest."""
    found = value.get(name, default)
    if not isinstance(found, str):
        raise BadRequest(f"{name}: use text.")
    return found


def whole_of(value: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A whole number of the body. Raises BadRequest."""
    found = value.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 53:
        raise BadRequest(f"{name}: use a whole number.")
    return found


def number_of_query(name: str, default: int, most: int) -> int:
    """A whole number of the query. Raises BadRequest."""
    text = request.args.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= most):
        raise BadRequest(f"{name}: use a whole number up to {most:,}.")
    return int(text)


def document(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _described(each)
    schemas = {
        definition.__name__.removesuffix("Definition"): _schema_of(definition)
        for definition in (TopicDefinition, FamilyDefinition, GroupDefinition)
    }
    error = {"type": "object", "properties": {"error": TEXT, "faults": ANY}, "required": ["error"]}
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Penstock console",
            "version": version,
            "description": "Roles: see x-role of each operation.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": error},
        },
    }


def _described(each: Operation) -> dict[str, Any]:
    names = [part[1:-1] for part in each.path.split("/") if part.startswith("{")]
    found: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "x-role": each.role.label,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": WHOLE if name.endswith("_id") else TEXT} for name in names),
            *({"name": name, "in": "query", "schema": schema} for name, schema in each.query.items()),
        ],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": ANY}}},
            "default": {
                "description": "Refused or failed.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }  # fmt: skip
    if each.method == "POST":
        schema: dict[str, Any] = {"type": "object", "properties": dict(each.body)}
        if each.required:
            schema["required"] = list(each.required)
        found["requestBody"] = {"required": bool(each.required), "content": {"application/json": {"schema": schema}}}
    return found


def _schema_of(definition: type) -> dict[str, Any]:
    """The settings of a definition as a schema."""
    rows = {row["name"]: row for row in described(definition)}
    return {
        "type": "object",
        "properties": {
            name: {"description": " ".join(filter(None, (rows[name]["help"], rows[name]["unset"])))}
            for name in table_of(definition)
        },
    }
