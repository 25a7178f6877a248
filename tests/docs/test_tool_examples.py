"""The examples of `examples/tools` do what they say: one of each kind of backend, before the services beside them."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.config.load import read
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.tools.factory import KEYS, kind_of
from support.servers_schema import check

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples/tools"


def started(program: str) -> Iterator[str]:
    """Where a service of the examples answers; it is ended afterwards."""
    process = subprocess.Popen(
        [sys.executable, FOLDER / program, "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"{program} did not start"
        yield address
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    yield from started("service.py")


@pytest.fixture(scope="module")
def grpc_service() -> Iterator[str]:
    pytest.importorskip("grpc_reflection")
    yield from started("grpc_service.py")


def settings_of(name: str, **variables: str) -> Settings:
    return read(FOLDER / f"{name}.toml", {**os.environ, **variables}).settings


async def said(settings: Settings, tool: str, **arguments: Any) -> str:
    """The text of a call, which must not have failed."""
    with anyio.fail_after(60):
        async with Bridge(settings) as bridge:
            await bridge.settled(30)
            result = await bridge.request("tools/call", {"name": tool, "arguments": arguments})
    text = result["content"][0]["text"]
    assert not result.get("isError"), text
    return text


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


def test_there_is_an_example_of_every_kind() -> None:
    """Issue 8: an example config per backend kind."""
    kinds = {kind_of(tool) for path in FOLDER.glob("*.toml") for tool in read(path, {}).settings.tools.values()}
    assert kinds == set(KEYS.values())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_an_example_loads_and_fits_the_schema(path: Path) -> None:
    loaded = read(path, {})
    assert loaded.warnings == ()
    assert not any(tool.unavailable for tool in loaded.settings.tools.values())
    check(tomllib.loads(path.read_text("utf-8")))


@pytest.mark.parametrize(
    ("name", "tool", "arguments", "expected"),
    [
        ("function", "slugify", {"text": "Hello, World"}, "hello-world"),
        ("executor", "glossary", {"word": "tide"}, "the rise and fall of the sea"),
        ("pack", "texts__shorten", {"text": "a long story", "words": 2}, "a long … (1 more)"),
        ("spec", "glossary_entry", {"word": "fender"}, "what keeps a hull from the quay"),
        ("agent", "critic", {"message": "hi there"}, "2 words"),
    ],
)
async def test_python_code_is_called(name: str, tool: str, arguments: dict[str, Any], expected: str) -> None:
    assert expected in await said(settings_of(name), tool, **arguments)


@pytest.mark.parametrize(
    ("name", "tool", "arguments", "expected"),
    [
        ("http", "weather", {"city": "Oslo", "units": "imperial"}, '"degrees":50'),
        ("openapi", "tasks__getTask", {"id": 1}, "mend the sail"),
        ("spec", "city_weather", {"city": "Oslo"}, '"sky":"clear"'),
        ("agent", "travel", {"message": "a weekend in Lisbon"}, "A plan for a weekend in Lisbon"),
    ],
)
async def test_a_service_is_called(
    name: str, tool: str, arguments: dict[str, Any], expected: str, service: str
) -> None:
    assert expected in await said(settings_of(name, SERVICE=service), tool, **arguments)


@pytest.mark.parametrize("tool", ["orders__GetOrder", "order"])
async def test_a_grpc_service_is_called(tool: str, grpc_service: str) -> None:
    assert '"item":"rope"' in await said(settings_of("grpc", GRPC_SERVICE=grpc_service), tool, id=7)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox here")
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [("count_words", {"path": "poem.txt"}, "poem.txt"), ("sort_lines", {"text": "b\na"}, "a\nb")],
)
async def test_a_command_is_run(tool: str, arguments: dict[str, Any], expected: str) -> None:
    assert expected in await said(settings_of("command"), tool, **arguments)
