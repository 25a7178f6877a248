"""A service that describes itself with OpenAPI, as people run them: Starlette, in this process, on a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["Pets", "document", "pet_service"]


_PET = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "example": "Rex"},
        "password": {"type": "string", "writeOnly": True},
        "nick": {"type": "string", "nullable": True},
        "mother": {"$ref": "#/components/schemas/Pet"},
    },
}


def document(server: str = "/v1") -> dict[str, Any]:
    """Its description, of OpenAPI 3.0."""
    answer = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}, "description": "ok"}
    pet_id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": server}],
        "components": {
            "schemas": {"Pet": _PET},
            "parameters": {"Id": pet_id},
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        },
        "paths": {
            "/pets/{id}": {
                "parameters": [{"$ref": "#/components/parameters/Id"}],
                "get": {
                    "operationId": "pets/get",
                    "summary": "One pet",
                    "description": "The pet with this id.",
                    "tags": ["reading"],
                    "parameters": [
                        {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                        {"name": "X-Key", "in": "header", "schema": {"type": "string"}},
                        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    ],
                    "responses": {"200": answer},
                },
                "put": {
                    "operationId": "pets/put",
                    "tags": ["writing"],
                    "parameters": [{"name": "name", "in": "query", "schema": {"type": "string"}}],
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                    },
                    "responses": {"200": answer},
                },
                "delete": {"tags": ["writing"], "responses": {"204": {"description": "gone"}}},
                "patch": {"deprecated": True, "responses": {}},
            },
            "/upload": {
                "post": {
                    "operationId": "upload",
                    "requestBody": {
                        "content": {
                            "multipart/form-data": {
                                "schema": {
                                    "type": "object",
                                    "properties": {
                                        "note": {"type": "string"},
                                        "file": {"type": "string", "format": "binary"},
                                    },
                                }
                            }
                        }
                    },
                    "responses": {},
                }
            },
            "/broken": {"get": {"parameters": [{"$ref": "other.yaml#/x"}], "responses": {}}},
        },
    }


class Pets:
    """The service, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.document: Mapping[str, Any] | None = document()
        """None: there is none at the moment."""
        self.document_keys: list[str | None] = []
        """What each who asked for the document showed."""
        self.answer: Any = None
        """What it answers about every pet; None: what it was asked."""

    async def tell(self, request: Request) -> Response:
        """The document."""
        self.document_keys.append(request.headers.get("x-key"))
        if self.document is None:
            return Response("not yet", 503)
        return JSONResponse(self.document)

    async def pet(self, request: Request) -> Response:
        """One pet, or no pet."""
        body = await request.body()
        said = {
            "method": request.method,
            "raw_path": request.scope["raw_path"].decode(),
            "query": request.url.query,
            "key": request.headers.get("x-key"),
            "headers": dict(request.headers),
            "body": json.loads(body) if body else None,
        }
        self.asked.append(said)
        if request.path_params["id"] == "slow":
            await self._wait(request)
        if request.path_params["id"] == "none":
            return JSONResponse({"detail": f"no such pet; your key was {said['key']}"}, 404)
        if request.method == "DELETE":
            return Response(status_code=204)
        return JSONResponse(self.answer or {"name": request.path_params["id"], "key": said["key"], "mother": None})

    async def _wait(self, request: Request) -> None:
        """For a minute, unless its asker goes."""
        self.begun.set()
        try:
            async with asyncio.timeout(60):
                while not await request.is_disconnected():
                    await asyncio.sleep(0.01)
        finally:
            self.ended.set()

    async def upload(self, request: Request) -> Response:
        """What was uploaded."""
        form = await request.body()
        return JSONResponse({"type": request.headers.get("content-type", ""), "body": form.decode("latin-1")})


@asynccontextmanager
async def pet_service() -> AsyncGenerator[Pets]:
    """It runs."""
    pets = Pets()
    app = Starlette(
        routes=[
            Route("/openapi.json", pets.tell),
            Route("/v1/pets/{id:path}", pets.pet, methods=["GET", "PUT", "DELETE", "POST"]),
            Route("/v1/upload", pets.upload, methods=["POST"]),
        ]
    )
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        pets.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        web = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, lifespan="off"))
        serving = asyncio.create_task(web.serve(sockets=[listening]))
        try:
            yield pets
        finally:
            web.should_exit = True
            await serving
