"""The operations of a service in this process that describes itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from support.backends.backend_calls import SECRET, made
from support.backends.backend_case import BackendCase
from support.backends.pet_service import pet_service


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A pet by its id."""
    async with pet_service() as pets:

        async def begun() -> None:
            await pets.begun.wait()

        yield BackendCase(
            made("pets", "openapi", directory, openapi=f"{pets.url}/openapi.json", headers={"X-Key": SECRET}),
            "pets_get",
            {"id": "Rex"},
            '"name":"Rex"',
            slow_arguments={"id": "slow"},
            failing_arguments={"id": "none"},
            begun=begun,
            is_over=pets.ended.is_set,
            forbidden=(SECRET,),
        )
