"""Which package a command line runs: the runners people write, with and without options, versions and programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.isolation.packages import package_of


@pytest.mark.parametrize(
    ("line", "runner", "name", "arguments"),
    [
        (
            "npx -y @modelcontextprotocol/server-filesystem@1.2 /x",
            "npx",
            "@modelcontextprotocol/server-filesystem",
            "/x",
        ),
        ("npx.cmd --yes --registry https://r.example server-x", "npx", "server-x", ""),
        ("npx -y --package=@a/b@1 -- bin x", "npx", "@a/b", "x"),
        ("npx -p @a/b bin x", "npx", "@a/b", "x"),
        ("npm exec -y server-x y", "npx", "server-x", "y"),
        ("bunx server-x", "bunx", "server-x", ""),
        ("bun x server-x@latest", "bunx", "server-x", ""),
        ("uvx mcp-server-time@latest --local-timezone UTC", "uvx", "mcp-server-time", "--local-timezone UTC"),
        ("uvx --from mcp-server-git==1.0 --python 3.12 git-server -r .", "uvx", "mcp-server-git", "-r ."),
        ("uv tool run mcp-server-git[x]>=1 -r .", "uvx", "mcp-server-git", "-r ."),
        ("uv run --with fastmcp server.py", "uv run", "fastmcp", ""),
        ("pipx run --spec mcp-x==1 mcp a", "pipx", "mcp-x", "a"),
        ("/usr/bin/python3.11 -m mcp_server_git --repository .", "", "mcp-server-git", "--repository ."),
        ("node /a/node_modules/@mcp/srv/dist/index.js x", "", "@mcp/srv", "x"),
        ("/v/bin/mcp-server-time -v", "", "mcp-server-time", "-v"),
        ("C:\\tools\\server.exe a", "", "server", "a"),
    ],
)
def test_the_package_of_a_command_line(line: str, runner: str, name: str, arguments: str) -> None:
    command, *args = line.split()
    package = package_of(command, args)
    assert (package.runner, package.name, " ".join(package.arguments)) == (runner, name, arguments)


@given(st.text(min_size=1), st.lists(st.text()))
def test_any_command_line_has_one_and_no_argument_is_lost(command: str, args: list[str]) -> None:
    package = package_of(command, args)
    assert [*package.before, *package.arguments] == args


@given(st.sampled_from(["npx", "uvx", "bunx", "pipx", "uv", "npm"]), st.lists(st.sampled_from(
    ["run", "tool", "exec", "-y", "-p", "--from", "--", "a@1", "--package=b", "", "x"]
)))  # fmt: skip
def test_no_argument_is_lost_of_runners_either(command: str, args: list[str]) -> None:
    package = package_of(command, args)
    assert [*package.before, *package.arguments] == args
