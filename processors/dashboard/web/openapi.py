"""The API's description (OpenAPI 3.1), from the table of routes and the typed answers."""

from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from rollbook.processors.dashboard.answers import Problem
from rollbook.processors.dashboard.web.routes import DESCRIPTION, ROUTES, Parameter, Route

_ALWAYS = {
    HTTPStatus.FORBIDDEN: "Asked for by a page of another site.",
    HTTPStatus.METHOD_NOT_ALLOWED: "Only GET and HEAD.",
    HTTPStatus.MISDIRECTED_REQUEST: "The header Host is no name of this dashboard.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A defect of rollbook.",
}
_PROBLEMS = {
    HTTPStatus.BAD_REQUEST: "A parameter is wrong.",
    HTTPStatus.UNAUTHORIZED: "No token, or a wrong one.",
    HTTPStatus.NOT_FOUND: "Not known.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Not now: ask again a little later.",
}


def description() -> dict[str, Any]:
    """The document, as JSON takes it."""
    models = {route.answer for route in ROUTES if route.answer is not None} | {Problem}
    wanted = [(model, "serialization") for model in sorted(models, key=lambda model: model.__name__)]
    _, schemas = models_json_schema(wanted, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rollbook dashboard",
            "version": version("rollbook"),
            "summary": "What is committed in rollbook's topics, folded into memory. It only reads.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": {route.path: {"get": _operation(route), "head": _operation(route, "head_")} for route in ROUTES}
        | {DESCRIPTION: {"get": _own()}},
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Where the dashboard was started with a token; browsers sign in at /login.",
                }
            },
        },
    }


def _operation(route: Route, prefix: str = "") -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{prefix}{route.name}",
        "summary": route.summary,
        "description": route.about,
        "responses": dict(_responses(route, with_body=not prefix)),
    }
    if route.parameters:
        operation["parameters"] = [_parameter(parameter) for parameter in route.parameters]
    if route.is_open:
        operation["security"] = []
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where.value,
        "description": parameter.about,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }


def _responses(route: Route, *, with_body: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    schema = {"type": "string"} if route.answer is None else _ref(route.answer.__name__)
    content = {route.media_type: {"schema": schema}}
    body = {"content": content} if with_body else {}
    yield "200", {"description": route.summary, **body}
    if route.negative:
        yield "503", {"description": "No, and why.", **body}
    told = dict.fromkeys(route.problems, "") | ({} if route.is_open else {HTTPStatus.UNAUTHORIZED: ""})
    for status, about in ({status: _PROBLEMS[status] for status in told} | ({} if route.is_open else _ALWAYS)).items():
        problem = {"content": {"application/json": {"schema": _ref(Problem.__name__)}}} if with_body else {}
        yield str(status.value), {"description": about, **problem}


def _own() -> dict[str, Any]:
    return {
        "operationId": "openapi",
        "summary": "This description",
        "description": "OpenAPI 3.1.",
        "responses": {
            "200": {"description": "The description.", "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
