"""Documents of OpenAPI as tools: what they become, what is sent, and what of a document is not believed."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from mcpbridge.base.errors import ArgumentsRefused, UnknownName, UpstreamUnavailable
from mcpbridge.tools.openapi import backend as openapi
from mcpbridge.tools.openapi.backend import OpenApiBackend
from support.backends.backend_calls import SECRET, found, made, result, text_of, until
from support.backends.pet_service import Pets, document, pet_service

SHOP = """
openapi: 3.1.0
servers: [{url: "https://api.example.com"}]
paths:
  /items/{id}:
    post: {operationId: update item!, parameters: [{name: id, in: path, schema: {type: string}}]}
"""


@asynccontextmanager
async def pets_as_tools(pets: Pets, **settings: Any) -> AsyncGenerator[OpenApiBackend]:
    """The service's tools, ready."""
    settings = {"openapi": f"{pets.url}/openapi.json", "headers": {"X-Key": SECRET}, **settings}
    backend = cast("OpenApiBackend", made("pets", "openapi", **settings))
    async with found(backend):
        yield backend


async def test_every_operation_becomes_a_tool_that_calls_the_service() -> None:
    async with pet_service() as pets, pets_as_tools(pets) as backend:
        tools = {tool["name"]: tool for tool in backend.tools}
        assert list(tools) == ["pets_get", "pets_put", "delete_pets_id", "upload"]
        get, put, delete, _ = tools.values()
        assert get["title"] == "One pet"
        assert get["description"] == "One pet\n\nThe pet with this id."
        assert get["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
        assert delete["annotations"]["destructiveHint"] is True
        assert put["annotations"]["idempotentHint"] is True
        assert list(get["inputSchema"]["properties"]) == ["id", "fields", "X-Trace"]  # the key is the bridge's
        assert get["inputSchema"]["required"] == ["id"]
        fields = put["inputSchema"]["properties"]
        assert list(fields) == ["id", "name", "name_body", "password", "nick", "mother"]
        assert fields["nick"] == {"type": ["string", "null"]}
        assert put["inputSchema"]["required"] == ["id", "name_body"]
        pet = put["inputSchema"]["$defs"]["Pet"]["properties"]
        assert "id" not in pet  # only answers have it
        assert pet["mother"] == {"$ref": "#/$defs/Pet"}
        assert "password" not in get["outputSchema"]["properties"]
        for tool in backend.tools:
            jsonschema_rs.validator_for(tool["inputSchema"])

        arguments = {"id": "a/b", "fields": ["x", "y&z"], "X-Trace": "t"}
        got = await result(backend, "pets_get", arguments)
        assert got["structuredContent"] == {"name": "a/b", "key": "[redacted]", "mother": None}
        asked = pets.asked[-1]
        assert (asked["raw_path"], asked["query"]) == ("/v1/pets/a%2Fb", "fields=x&fields=y%26z")
        assert (asked["key"], asked["headers"]["x-trace"]) == (SECRET, "t")

        await result(backend, "pets_put", {"id": "7", "name": "q", "name_body": "Rex", "mother": {"name": "Ada"}})
        assert pets.asked[-1]["query"] == "name=q"
        assert pets.asked[-1]["body"] == {"name": "Rex", "mother": {"name": "Ada"}}
        assert "204" in text_of(await result(backend, "delete_pets_id", {"id": "7"}))
        failed = await result(backend, "pets_get", {"id": "none"})
        assert failed["isError"] is True
        assert "no such pet" in text_of(failed)
        assert SECRET not in text_of(failed)
        with pytest.raises(ArgumentsRefused, match="another path"):
            await result(backend, "pets_get", {"id": "../../admin"})


async def test_a_broken_operation_takes_none_with_it_and_is_told() -> None:
    async with pet_service() as pets, pets_as_tools(pets) as backend:
        (dropped,) = backend.dropped
        assert dropped.operation == "GET /broken"
        assert "bundle" in dropped.reason
        health = await backend.check()
        assert health.ok
        assert health.detail.endswith("4 tools, 1 operations left out")
        with pytest.raises(UnknownName, match="reload"):
            await backend.command("warmup", {})


async def test_a_file_is_uploaded_as_a_part() -> None:
    async with pet_service() as pets, pets_as_tools(pets) as backend:
        upload = next(tool for tool in backend.tools if tool["name"] == "upload")
        assert upload["inputSchema"]["properties"]["file"]["contentEncoding"] == "base64"
        file = base64.b64encode(b"\x00\xffdata").decode()
        got = (await result(backend, "upload", {"note": "hé\r\nx", "file": file}))["structuredContent"]
        boundary = got["type"].partition("boundary=")[2]
        assert got["type"].startswith("multipart/form-data")
        parts = got["body"].split(f"--{boundary}")
        assert len(parts) == 4
        assert parts[1].endswith("hé\r\nx\r\n".encode().decode("latin-1"))
        assert 'filename="file"' in parts[2]
        assert parts[2].endswith("\x00\xffdata\r\n")
        assert (await result(backend, "upload", {}))["structuredContent"] == {"type": "", "body": ""}
        with pytest.raises(ArgumentsRefused, match="base64"):
            await result(backend, "upload", {"file": "no base64!"})


async def test_the_document_is_tried_again_and_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "FIRST_WAIT", 0.01)
    async with pet_service() as pets:
        there, pets.document = pets.document, None
        backend = cast("OpenApiBackend", made("pets", "openapi", openapi=f"{pets.url}/openapi.json"))
        async with found(backend, "failed") as changes:
            assert "HTTP 503" in backend.condition.reason
            assert backend.tools == ()
            with pytest.raises(UpstreamUnavailable, match="HTTP 503"):
                await result(backend, "pets_get", {"id": "1"})
            assert not (await backend.check()).ok
            pets.document = there
            await until(lambda: backend.condition.state == "ready")
            told = changes()
            assert told == 2
            assert (await backend.command("reload", {}))["tools"] == 4
            assert changes() == told  # nothing is new
            less = document()
            del less["paths"]["/pets/{id}"]["put"]
            pets.document = less
            reloaded = await backend.command("reload", {})
            assert (reloaded["tools"], reloaded["dropped"][0]["operation"]) == (3, "GET /broken")
            assert changes() == told + 1
            pets.document = {"swagger": "2.0"}
            with pytest.raises(UpstreamUnavailable, match=r"Swagger 2\.0"):
                await backend.command("reload", {})
            assert len(backend.tools) == 3
            assert backend.condition.state == "ready"


async def test_a_schema_of_results_that_the_service_does_not_keep_is_taken_back() -> None:
    """A client refuses results that are not as the tool says, so it must not say what is not so."""
    async with pet_service() as pets:
        backend = cast("OpenApiBackend", made("pets", "openapi", openapi=f"{pets.url}/openapi.json"))
        async with found(backend) as changes:
            before = changes()
            pets.answer = {"name": None, "id": 7, "mother": {"unknown": [1]}}  # nothing that is told is wrong
            await result(backend, "pets_get", {"id": "1"})
            assert changes() == before
            pets.answer = {"name": 5}
            got = await result(backend, "pets_get", {"id": "1"})
            assert got["structuredContent"] == {"name": 5}
            assert changes() == before + 1
            assert [tool["name"] for tool in backend.tools if "outputSchema" in tool] == ["pets_put"]


async def test_a_document_may_send_requests_to_its_own_host_alone() -> None:
    """Who can change it could have the credentials sent anywhere."""
    async with pet_service() as elsewhere, pet_service() as pets:
        pets.document = document(f"{elsewhere.url}/v1")
        backend = made("pets", "openapi", openapi=f"{pets.url}/openapi.json")
        async with found(backend, "failed"):
            assert "`base_url`" in backend.condition.reason
        assert elsewhere.asked == []
        async with pets_as_tools(pets, base_url=f"{elsewhere.url}/v1/") as backend:
            await result(backend, "pets_get", {"id": "1"})
            assert elsewhere.asked[-1]["key"] == SECRET
        value = document()
        value["paths"]["/pets/{id}"]["get"]["servers"] = [{"url": "https://evil.example/v1"}]
        value["paths"]["/pets/{id}"]["put"]["servers"] = [{"url": "/v2"}]
        pets.document = value
        async with pets_as_tools(pets) as backend:
            assert "another host" in backend.dropped[0].reason
            assert backend._document_tools.operations["pets_put"].base == f"{pets.url}/v2"


async def test_credentials_are_shown_for_the_document_on_the_host_of_the_api_alone() -> None:
    async with pet_service() as pets:
        async with pets_as_tools(pets), pets_as_tools(pets, base_url=f"{pets.url}/v1"):
            assert pets.document_keys == [SECRET, SECRET]
        elsewhere = "https://api.example.com/v1"
        async with pets_as_tools(pets, base_url=elsewhere, auth={"type": "bearer", "token": "t"}):
            assert pets.document_keys[2:] == [None]
        async with pets_as_tools(pets, base_url=elsewhere, document_headers={"X-Key": "its own"}):
            assert pets.document_keys[3:] == ["its own"]


async def test_a_file_is_read_from_the_directory_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    backend = made("shop", "openapi", tmp_path, openapi="shop.yaml")
    async with found(backend):
        assert [tool["name"] for tool in backend.tools] == ["update_item"]
    (tmp_path / "shop.yaml").write_text("openapi: [")
    async with found(made("shop", "openapi", tmp_path, openapi="shop.yaml"), "failed"):
        pass
    missing = made("shop", "openapi", tmp_path, openapi="missing.yaml")
    async with found(missing, "failed"):
        assert "no such file" in missing.condition.reason
    small = made("shop", "openapi", tmp_path, openapi="shop.yaml", max_document=1024)
    (tmp_path / "shop.yaml").write_text(SHOP + "#" * 2000)
    async with found(small, "failed"):
        assert "max_document" in small.condition.reason
