"""What `mcpbridge status` shows to people of the tools that no server has (issue 18)."""

from typing import Any

import anyio
import pytest

from mcpbridge.app.cli.daemon.status import _show
from mcpbridge.library.bridge import Bridge

READY = {"name": "weather", "kind": "http", "state": "ready", "reason": ""}


@pytest.mark.parametrize(
    ("bridge", "lines"),
    [
        ({}, []),
        ({"backends": [], "builtin": []}, []),
        ({"backends": [READY]}, ["tools: weather"]),
        ({"backends": [READY, {**READY, "name": "late", "state": "starting"}]}, ["tools: weather, late (starting)"]),
        (
            {"backends": [{**READY, "state": "failed", "reason": "no key"}]},
            ["tool weather (http) does not work: no key"],
        ),
        ({"builtin": ["http-get", "pulse"]}, ["built-in: http-get, pulse"]),
        (
            {"builtin": ["http-get", "web-search"], "inactive": [{"name": "web-search", "reason": "no key"}]},
            ["built-in: http-get", "tool web-search is inactive: no key"],
        ),
        ({"storage_problems": ["the disk is full"]}, ["problem: the disk is full"]),
        ({"backends": [{**READY, "name": "a\x1b[2J"}]}, ["tools: a�[2J"]),
    ],
)
def test_tools_that_no_server_has_are_shown(
    capsys: pytest.CaptureFixture[str], bridge: dict[str, Any], lines: list[str]
) -> None:
    _show({"version": "1", "pid": 1, "front": "stdio", **bridge})
    assert capsys.readouterr().out.splitlines()[1:] == lines


async def test_the_status_names_the_built_in_tools() -> None:
    with anyio.fail_after(60):
        async with Bridge.open({"builtin": {"enable": ["http-get"]}}) as bridge:
            assert bridge.status()["builtin"] == ["http-get"]
