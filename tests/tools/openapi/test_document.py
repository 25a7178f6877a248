"""Documents of OpenAPI: what their operations, schemas and servers become, and what of them is refused. No I/O."""

import json
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.tools.openapi.backend import outgoing_of
from mcpbridge.tools.openapi.document import Broken, value_of
from mcpbridge.tools.openapi.operations import DocumentTools, operations_of
from mcpbridge.tools.openapi.settings import OpenApiSettings
from support.backends.pet_service import document

YAML = """
openapi: 3.1.0
info: {title: Shop, version: 2024-05-01}
servers: [{url: "https://{region}.example.com/api", variables: {region: {default: eu}}}]
paths:
  /items/{id}:
    post:
      operationId: update item!
      parameters:
        - {name: id, in: path, required: true, schema: {type: [string, "null"]}}
        - {name: id, in: query, schema: {type: integer}}
        - {name: filter, in: query, style: deepObject, schema: {type: object}}
        - {name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}
        - {name: where, in: query, content: {application/json: {schema: {type: object}}}}
        - {name: sid, in: cookie, schema: {type: string}}
      requestBody:
        content:
          application/json:
            schema:
              allOf:
                - {$ref: '#/components/schemas/Base'}
                - {type: object, properties: {id: {type: string}, on: {type: boolean}}, required: [on]}
                - {required: [size]}
      responses:
        200: {description: fine}
components:
  schemas:
    Base:
      type: object
      properties:
        size: {type: integer}
        seen: {type: string, readOnly: true}
        parts: {type: array, items: {$ref: '#/components/schemas/Base'}}
      required: [size, seen]
"""


def operations(value: str | dict[str, Any], **settings: Any) -> DocumentTools:
    """What a document offers."""
    data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return operations_of(value_of(data), OpenApiSettings.model_validate({"openapi": "doc.json", **settings}))


def one(operation: dict[str, Any], path: str = "/x", method: str = "post", **more: Any) -> DocumentTools:
    """What a document with one operation offers."""
    given = {"openapi": "3.0.0", "servers": [{"url": "https://h.example/v1"}], "paths": {path: {method: operation}}}
    return operations({**given, **more})


def body(schema: Any, media_type: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {media_type: {"schema": schema}}, **more}}


def test_arguments_of_all_places_are_put_together() -> None:
    operation = operations(YAML, server_variables={"region": "us"}).operations["update_item"]
    schema = operation.definition["inputSchema"]
    assert list(schema["properties"]) == [
        *("id", "id_query", "filter", "tags", "where", "sid"),
        *("size", "parts", "id_body", "on"),
    ]
    assert schema["required"] == ["id"]  # the body may be left out
    outgoing = outgoing_of(
        operation,
        {
            "id": "p?",
            "id_query": 7,
            "id_body": "b",
            "filter": {"a b": [1]},
            "tags": ["x", "y,z"],
            "where": {"k": "&"},
            "sid": "s;t",
            "on": True,
            "size": None,
        },
    )
    assert outgoing.url == (
        "https://us.example.com/api/items/p%3F?id=7&filter%5Ba%20b%5D=1&tags=x,y%2Cz&where=%7B%22k%22%3A%22%26%22%7D"
    )
    assert dict(outgoing.headers) == {"cookie": "sid=s%3Bt", "content-type": "application/json"}
    assert json.loads(outgoing.content) == {"id": "b", "on": True, "size": None}
    assert outgoing_of(operation, {"id": "p"}).content == b""


_SHOP = operations(YAML).operations["update_item"]
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=12)
    | st.sampled_from(["..", "%2e%2e", "a/b", "?x=1#y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({"id": _values}, optional=dict.fromkeys(("id_query", "filter", "tags", "sid"), _values)))
def test_no_argument_leaves_its_place(arguments: dict[str, Any]) -> None:
    """CVE-2026-32871: whatever the arguments are, host, path and headers are those of the operation."""
    try:
        outgoing = outgoing_of(_SHOP, arguments)
    except ArgumentsRefused:
        return
    url = httpx2.URL(outgoing.url)
    path, _, query = url.raw_path.decode().partition("?")
    assert (url.scheme, url.host, url.fragment) == ("https", "eu.example.com", "")
    assert path.startswith("/api/items/")
    assert path.count("/") == 3
    assert f"https://eu.example.com{path}{'?' if query else ''}{query}" == outgoing.url
    assert {name for name, _ in outgoing.headers} <= {"cookie"}
    assert not any(set(value) & set("\r\n;") for _, value in outgoing.headers)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"oneOf": [{"type": "string"}], "nullable": True, "discriminator": {"propertyName": "a"}},
            {"anyOf": [{"oneOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "string", "example": "a", "xml": {}, "x-more": 1}, {"type": "string", "examples": ["a"]}),
        (
            {"type": "array", "items": {"nullable": True, "type": "string"}},
            {"type": "array", "items": {"type": ["string", "null"]}},
        ),
        ({"type": "object", "additionalProperties": {"x-a": 1}}, {"type": "object", "additionalProperties": {}}),
        ({"type": "object", "properties": {"nullable": {"type": "string"}}, "additionalProperties": True}, ...),
    ],
)
def test_schemas_of_3_0_become_those_of_today(schema: dict[str, Any], expected: Any) -> None:
    found = one(body(schema)).operations["post_x"].definition["inputSchema"]
    assert found["properties"]["body"] == (schema if expected is ... else expected)


@pytest.mark.parametrize(
    ("given", "arguments", "content", "media_type"),
    [
        (body({"type": "array"}), {"body": [1]}, b"[1]", "application/json"),
        (body({}, required=True), {"body": None}, b"null", "application/json"),
        (body({}), {}, b"", None),
        (body({}, "application/vnd.x+json"), {"body": 1}, b"1", "application/vnd.x+json"),
        (
            body({"properties": {"a": {}, "b": {}}}, "application/x-www-form-urlencoded"),
            {"a": "x&y", "b": [1, {"c": 2}]},
            b"a=x%26y&b=1&b=%7B%22c%22%3A2%7D",
            "application/x-www-form-urlencoded",
        ),
        (body({"type": "string"}, "text/plain"), {"body": "hé"}, "hé".encode(), "text/plain; charset=utf-8"),
        (body({}, "application/octet-stream"), {"body": "AAE="}, b"\0\1", "application/octet-stream"),
        (body({"type": "object", "properties": {}}, required=True), {}, b"{}", "application/json"),
    ],
)
def test_bodies(given: dict[str, Any], arguments: dict[str, Any], content: bytes, media_type: str | None) -> None:
    outgoing = outgoing_of(one(given).operations["post_x"], arguments)
    assert (outgoing.content, dict(outgoing.headers).get("content-type")) == (content, media_type)


@pytest.mark.parametrize(
    ("operation", "path", "reason"),
    [
        ({"parameters": [{"name": "a", "in": "nowhere"}]}, "/x", "no usable name or place"),
        ({"parameters": [{"name": "Host", "in": "header"}]}, "/x", "not for callers"),
        ({"parameters": [{"name": "a\r\nB", "in": "header"}]}, "/x", "not for callers"),
        ({"parameters": [{"name": "a;b", "in": "cookie"}]}, "/x", "cookie"),
        ({"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}, "/x", "style"),
        ({"parameters": [{"$ref": "#/components/x"}]}, "/x", "leads nowhere"),
        ({"parameters": [{"$ref": "http://127.0.0.1/x"}]}, "/x", "another document"),
        ({"parameters": [{"$ref": "#/paths/~1x/post/parameters/0"}]}, "/x", "circles"),
        ({"parameters": 5, **body({"$ref": "#/no"})}, "/x", "leads nowhere"),
        (body({"type": "object", "properties": 5, "allOf": 7}), "/{missing}", "no parameter"),
        (body(5), "/x", "no object"),
        ({}, "/a/../x", "characters"),
        ({}, "/a?b=c", "characters"),
        (body({"type": "array", "items": {}}, "application/x-www-form-urlencoded"), "/x", "no object"),
    ],
)
def test_an_operation_that_cannot_be_sent_is_dropped_with_the_reason(
    operation: dict[str, Any], path: str, reason: str
) -> None:
    offered = one(operation, path)
    assert not offered.operations
    assert reason in offered.dropped[0].reason
    assert offered.dropped[0].operation == f"POST {path}"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("[1]", "no JSON or YAML object"),
        ("{", "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
        ("swagger: '2.0'", "Swagger 2.0"),
        ("openapi: 4.0.0", "no OpenAPI 3"),
        ("openapi: 3.0.0\npaths: 5", "`paths`"),
        ("openapi: 3.0.0\npaths: {}", "base_url"),
        ("openapi: 3.0.0\nservers: [{url: 'https://{a}.h'}]", "variable"),
        ("openapi: 3.0.0\nservers: [{url: 'https://me:pw@h/'}]", "cannot be used"),
        ("openapi: 3.0.0\nservers: [{url: 'file:///etc'}]", "base_url"),
        ("openapi: 3.0.0\nx: !!python/object/apply:os.system [ls]", "neither JSON nor YAML"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_the_reason(document: str, reason: str) -> None:
    with pytest.raises(Broken) as refused:
        operations(document)
    assert reason in str(refused.value)


def test_texts_of_yaml_stay_texts() -> None:
    """OpenAPI means YAML 1.2, for which `on` and `no`, dates and times are texts."""
    read = value_of(
        b"openapi: 3.1.0\non: no\na: [2024-05-01, 1:30, 010, 0x1F, 1e3, .5, -7, ~, true, 1_000, '1']\n<<: {b: 1}"
    )
    assert read["on"] == "no"
    assert read["a"] == ["2024-05-01", "1:30", "010", "0x1F", 1000.0, 0.5, -7, None, True, "1_000", "1"]
    assert read["b"] == 1


def test_operations_are_chosen() -> None:
    def names(**settings: Any) -> list[str]:
        return list(operations(document("https://h.example"), **settings).operations)

    assert names(include={"tags": ["read*"]}) == ["pets_get"]
    assert names(include={"methods": ["get", "delete"], "paths": ["/pets/*"]}) == ["pets_get", "delete_pets_id"]
    assert names(exclude={"operations": ["pets/*"]}) == ["delete_pets_id", "upload"]
    assert names(include={"paths": ["/pets*"]}, exclude={"tags": ["writing"]}, deprecated=True) == [
        "pets_get",
        "patch_pets_id",
    ]
    assert names(include={"tags": ["none"]}) == []
    many = {f"/p{number}": {"get": {"operationId": "same"}} for number in range(5003)}
    offered = operations({"openapi": "3.1.0", "paths": many}, base_url="https://h.example")
    assert len(offered.operations) == 5000
    assert list(offered.operations)[:3] == ["same", "same_2", "same_3"]
    assert "more than 5,000" in offered.dropped[-1].reason


def test_documents_that_multiply_or_nest_are_bounded() -> None:
    """Aliases of YAML cost nothing to write and multiply with every look."""
    lines = ["openapi: 3.1.0", "x0: &a0 {type: string}"]
    lines += [f"x{n}: &a{n} {{anyOf: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}" for n in range(1, 12)]
    lines.append("paths: {/x: {post: {requestBody: {content: {application/json: {schema: *a11}}}}}}")
    offered = operations("\n".join(lines), base_url="https://h.example")
    assert "too large" in offered.dropped[0].reason
    circle = "openapi: 3.1.0\npaths: {/x: {post: {requestBody: {content: {a/json: {schema: &a {items: *a}}}}}}}"
    with pytest.raises(Broken, match="contains it"):
        operations(circle, base_url="https://h.example")


def test_definitions_are_bounded_together() -> None:
    """Each tool has the schemas in it that it refers to, so a small document can come to a large list."""
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string", "title": "x" * 90} for n in range(2000)}}
    paths = {f"/p{number}": {"post": body({"$ref": "#/components/schemas/S"})} for number in range(100)}
    document = {"openapi": "3.1.0", "paths": paths, "components": {"schemas": {"S": wide}}}
    offered = operations(document, base_url="https://h.example")
    sizes = [len(operation.encoded) for operation in offered.operations.values()]
    assert sum(sizes) <= 16 << 20 < sum(sizes) + sizes[0]
    assert len(offered.operations) + len(offered.dropped) == 100
    assert "choose with `include`" in offered.dropped[0].reason


WORDS = [
    *("$ref", "type", "properties", "allOf", "anyOf", "items", "required", "schema", "content", "nullable", "in"),
    *("name", "parameters", "requestBody", "responses", "200", "application/json", "enum", "minimum", "a"),
]

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(_json, _json)
def test_no_document_breaks_more_than_its_operation(operation: Any, schema: Any) -> None:
    """Whatever stands in it: a tool that can be listed, or a reason."""
    paths = {"/a/{a}": {"post": operation, "get": {}}, "/b": {"put": body(schema)}}
    value = {"openapi": "3.0.3", "paths": paths, "components": {"schemas": {"S": schema}}}
    offered = operations(value, base_url="https://h.example/v1")
    for tool in offered.operations.values():
        assert msgspec.json.encode(tool.definition)
        assert tool.definition["inputSchema"]["type"] == "object"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"base_url": "https://{h}/x"}, "host"),
        ({"base_url": "api.example.com"}, "without a query"),
        ({"base_url": "https://h/?a=1"}, "without a query"),
        ({"openapi": "https://me:pw@h/x.json"}, "credentials"),
        ({"openapi": "ftp://h/x.json"}, "expected an address"),
        ({"input_schema": {"type": "object"}}, "the document says it"),
        ({"include": {"tag": ["a"]}}, "include.tag"),
        ({"include": {"methods": ["FETCH"]}}, "methods"),
    ],
)
def test_settings_of_documents_that_cannot_work_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as refused:
        OpenApiSettings.model_validate({"openapi": "x.json", **settings})
    assert expected in str(refused.value)


def test_aliases_that_stand_for_more_than_the_document_could_say_are_refused() -> None:
    """Two kilobytes of YAML can stand for a billion values."""
    lines = [f"x-a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 31)]
    bomb = "\n".join(["openapi: 3.1.0", "x-a0: &a0 {p: 1}", *lines, "paths: {}"])
    with pytest.raises(Broken, match="aliases"):
        value_of(bomb.encode())
    with pytest.raises(Broken, match="contains it"):
        value_of(b"openapi: 3.1.0\nx: &x {y: *x}\npaths: {}\n")
    shared = value_of(b"openapi: 3.1.0\nx: &x {y: 1}\nz: [*x, *x, {w: *x}]\npaths: {}\n")
    assert shared["z"] == [{"y": 1}, {"y": 1}, {"w": {"y": 1}}]
