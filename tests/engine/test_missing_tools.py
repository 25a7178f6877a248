"""Calls of tools that are not there, as what they are made of does not work: the reason is told, and if it passes."""

from pathlib import Path

import pytest

from mcpbridge.config.load import read
from mcpbridge.library.bridge import Bridge

TEXT = """
[tools.later]
function = "no_such_module_of_mine:f"
[tools.pets]
openapi = "http://127.0.0.1:1/openapi.json"
[tools.unset]
endpoint = "https://example.com/${NOT_SET_ANYWHERE}"
[store]
path = "kept.db"
[bridge]
startup_wait = "60s"
"""


@pytest.mark.parametrize(
    ("name", "kind", "parts"),
    [
        ("later", "ToolInactive", ["tools/later is inactive", "no module is called", "Do not retry."]),
        ("tools/later", "ToolInactive", ["no module is called"]),
        ("unset", "ToolInactive", ["missing variable ${NOT_SET_ANYWHERE}", "Do not retry."]),
        ("pets__list", "UpstreamUnavailable", ["Tool 'tools/pets': the document", "Try again later"]),
    ],
)
async def test_who_calls_it_learns_why_and_whether_to_try_again(
    tmp_path: Path, name: str, kind: str, parts: list[str]
) -> None:
    (tmp_path / "servers.toml").write_text(TEXT)
    async with Bridge(read(tmp_path / "servers.toml", {}).settings) as bridge:
        result = await bridge.request("tools/call", {"name": name, "arguments": {}})
        told = result["content"][0]["text"]
        assert result["isError"]
        assert result["_meta"]["mcpbridge/error"] == kind
        assert [part for part in parts if part not in told] == []
        assert ".." not in told
