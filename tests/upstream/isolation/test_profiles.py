"""Profiles of well-known servers: what each adds, what a table says otherwise, and a server that has none."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcpbridge.sandbox.egress.rules import Rules
from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.isolation.profiles import PROFILES, profile_of, with_profile
from mcpbridge.upstream.isolation.settings import ServerSandbox
from mcpbridge.upstream.settings import ServerSettings


def sandbox_of(line: str, sandbox: object = "profile", **settings: Any) -> ServerSandbox:
    command, *args = line.split()
    server = ServerSettings.model_validate({"command": command, "args": args, "sandbox": sandbox, **settings})
    assert server.sandbox is not None
    return with_profile(server.sandbox, package_of(command, args), server.env, server.cwd or "")


@pytest.mark.parametrize(
    ("line", "settings", "folders", "network"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem /a /b/../c", {}, ("/a", "/c"), "none"),
        ("npx -y @modelcontextprotocol/server-filesystem@2025.1.1 docs", {"cwd": "/srv"}, ("/srv/docs",), "none"),
        ("uvx mcp-server-git --repository /r", {}, ("/r",), "none"),
        ("uvx mcp-server-git --repository=/r -r /s", {}, ("/r", "/s"), "none"),
        ("python -m mcp_server_git", {}, (), "none"),
        ("uvx mcp-server-sqlite --db-path /data/x.db", {}, ("/data",), "none"),
        ("npx @modelcontextprotocol/server-memory", {"env": {"MEMORY_FILE_PATH": "/m/x.json"}}, ("/m",), "none"),
        ("uvx mcp-server-fetch", {}, (), "open"),
        ("/opt/github-mcp-server stdio", {}, (), PROFILES["github"].network),
    ],
)
def test_a_profile_gives_a_server_what_it_needs(
    line: str, settings: dict[str, Any], folders: tuple[str, ...], network: object
) -> None:
    sandbox = sandbox_of(line, **settings)
    assert sandbox.allow_fs is not None
    assert sandbox.allow_fs.read_write == folders
    assert sandbox.network == network


def test_a_table_adds_to_the_profile_and_replaces_its_network() -> None:
    own = {"profile": "auto", "network": ["x.example.com:443"], "allow_fs": {"read_write": ["/more"]}, "memory": "1 GB"}
    sandbox = sandbox_of("npx -y @modelcontextprotocol/server-filesystem /a", own)
    assert sandbox.network == ("x.example.com:443",)
    assert sandbox.allow_fs is not None
    assert sandbox.allow_fs.read_write == ("/more", "/a")
    assert sandbox.memory == 10**9
    assert sandbox_of("/opt/my-fork /a", {"profile": "time"}).network == "none"


@pytest.mark.parametrize(
    ("line", "sandbox", "message"),
    [
        ("npx -y unknown-server", "profile", "no profile is known for `unknown-server`.*Profiles: .*filesystem"),
        ("uvx mcp-server-time", {"profile": "tine"}, "there is no profile `tine`"),
    ],
)
def test_a_server_without_a_profile_is_an_error(line: str, sandbox: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        sandbox_of(line, sandbox)


def test_every_profile_can_be_used() -> None:
    packages = [package for profile in PROFILES.values() for package in profile.packages]
    assert len(set(packages)) == len(packages)
    for name, profile in PROFILES.items():
        if isinstance(profile.network, tuple):
            assert Rules(profile.network).ports
        for package in profile.packages:
            assert profile_of(package_of("npx", ["-y", f"{package}@1.0.0"])) == name
