"""A request to a service in this process; the slow one waits for a minute."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from support.backends.backend_calls import SECRET, made
from support.backends.backend_case import BackendCase
from support.backends.pet_service import pet_service


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A pet by its name."""
    async with pet_service() as pets:

        async def begun() -> None:
            await pets.begun.wait()

        yield BackendCase(
            made("pet", "http", directory, endpoint=f"{pets.url}/v1/pets/{{name}}", headers={"X-Key": SECRET}),
            "pet",
            {"name": "Rex"},
            '"name":"Rex"',
            slow_arguments={"name": "slow"},
            failing_arguments={"name": "none"},
            begun=begun,
            is_over=pets.ended.is_set,
            forbidden=(SECRET,),
        )
