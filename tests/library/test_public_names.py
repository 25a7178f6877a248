"""What `from mcpbridge import …` gives, and what it costs."""

import subprocess
import sys

import pytest

import mcpbridge


@pytest.mark.parametrize("name", mcpbridge.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(mcpbridge, name)
    assert name in dir(mcpbridge)
    assert isinstance(found, str) or found.__doc__ or not isinstance(found, type)


def test_what_there_is_not_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="Brigde"):
        mcpbridge.Brigde  # noqa: B018 - that is the test


def test_importing_the_package_loads_nothing_else() -> None:
    """The shim, which has 100 ms in all, begins with it."""
    code = "import sys; known = set(sys.modules); import mcpbridge; print(*sorted(set(sys.modules) - known))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in out if not name.startswith("mcpbridge")] == []
    assert set(out) <= {"mcpbridge", "mcpbridge.base", "mcpbridge.base.version"}


def test_opening_a_bridge_loads_no_model_package_and_no_sdk() -> None:
    code = (
        "import sys, asyncio, mcpbridge\n"
        "async def main():\n"
        "    async with mcpbridge.Bridge.open({}, tools=[len_of], remember=False) as bridge:\n"
        "        await bridge.call_tool('len_of', {'text': 'four'})\n"
        "def len_of(text: str) -> int:\n    return len(text)\n"
        "asyncio.run(main())\n"
        "print(*(name for name in ('mcp', 'openai', 'anthropic', 'structlog', 'httpx2') if name in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert out == []
