"""What all tests share: the asyncio backend, since the per-message path of the bridge uses asyncio directly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Place


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where a test runs the real bridge; see `harness`."""
    place = Place(tmp_path)
    yield place
    place.clean()
