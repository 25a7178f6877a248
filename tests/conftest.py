"""What all tests share: the asyncio backend, since the per-message path of the bridge uses asyncio directly."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from harness import Place


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


_numbers = itertools.count()


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(autouse=True)
def _own_state(_states: Path) -> None:
    """A bridge in the test process keeps its state apart from the developer's, and from that of other tests."""
    os.environ["XDG_STATE_HOME"] = str(_states / str(next(_numbers)))


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """What a command in the test process sets up for its logs is not for the tests that follow."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where a test runs the real bridge; see `harness`."""
    place = Place(tmp_path)
    yield place
    place.clean()
