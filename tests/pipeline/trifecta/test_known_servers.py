"""Which row of the table a server is of, by how it is started or reached."""

from typing import Any

import pytest

from mcpbridge.pipeline.trifecta.known_servers import KNOWN, known_server


def row_of(**how: Any) -> str:
    """The first name of the row; empty: it is not known."""
    given: dict[str, Any] = {"command": None, "args": [], "image": None, "url": None, **how}
    row = known_server(given["command"], given["args"], given["image"], given["url"])
    return row.names[0] if row is not None else ""


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]}, "filesystem"),
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2025.8.21"]}, "filesystem"),
        ({"command": "/usr/bin/npx", "args": ["@ModelContextProtocol/server-filesystem@latest"]}, "filesystem"),
        ({"command": "uvx", "args": ["mcp-server-fetch==2025.4.7"]}, "mcp-server-fetch"),
        ({"command": "uvx", "args": ["--from", "mcp-server-git[all]>=1", "mcp-server-git"]}, "mcp-server-git"),
        ({"command": "/opt/bin/mcp-server-time"}, "mcp-server-time"),
        ({"image": "ghcr.io/github/github-mcp-server:v0.10.0"}, "server-github"),
        ({"image": "docker.io/mcp/fetch@sha256:" + "a" * 64}, "mcp-server-fetch"),
        ({"command": "docker", "args": ["run", "-i", "--rm", "mcp/time:1"]}, "mcp-server-time"),
        ({"url": "https://api.githubcopilot.com/mcp/"}, "server-github"),
        ({"url": "https://MCP.Notion.com/mcp"}, "server-github"),
        ({"command": "npx", "args": ["mcp-remote@0.1.2", "https://mcp.linear.app/sse"]}, "server-github"),
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest", "--headless"]}, "brave-search"),
    ],
    ids=str,
)
def test_a_server_is_known_by_its_package_image_or_host(how: dict[str, Any], name: str) -> None:
    assert row_of(**how).endswith(name)


@pytest.mark.parametrize(
    "how",
    [
        {"command": "npx", "args": ["-y", "evil-mcp-server-time"]},
        {"command": "npx", "args": ["@modelcontextprotocol/server-filesystem-evil"]},
        {"url": "https://mcp.notion.com.evil.example/mcp"},
        {"url": "https://evil.example/?mcp.notion.com"},
        {"image": "evil.example/mcp/time"},
        {"command": "python", "args": ["server.py"]},
        {"command": "npx", "args": ["-y", "unknown-server", "mcp-server-time"]},
        {},
    ],
    ids=str,
)
def test_what_only_looks_like_a_known_server_is_not_one(how: dict[str, Any]) -> None:
    assert row_of(**how) == ""


def test_every_name_of_the_table_is_of_one_row_and_found() -> None:
    names = [name for row in KNOWN for name in row.names]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert all(row_of(command="npx", args=[name]) for name in names)
