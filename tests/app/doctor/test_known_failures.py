"""Breakages that are recognised by what a server says before it dies (issue 7: "known breakages with the fix")."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.doctor.known_failures import KNOWN, recognise
from mcpbridge.upstream.settings import ServerSettings

SAID: dict[str, list[tuple[str, str]]] = {
    "pypi-mcp-2": [
        ("uvx", "    @server.list_resources()\nAttributeError: 'Server' object has no attribute 'list_resources'"),
        ("uvx", "ModuleNotFoundError: No module named 'mcp.server.fastmcp'"),
        ("uvx", "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where"),
        ("python3.12", "ImportError: cannot import name 'McpError' from 'mcp' (/x/mcp/__init__.py)"),
        ("uvx", "ImportError: cannot import name 'RequestContext' from 'mcp.shared.context' (/x/context.py)"),
        ("/venv/bin/mcp-server-sqlite", "AttributeError: 'Server' object has no attribute 'call_tool'"),
    ],
    "npx-asks": [("npx", 'npm error npx canceled due to missing packages and no YES option: ["mcp-remote@0.15.1"]')],
    "npm-no-package": [("npx", "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/x")],
    "npm-no-program": [("npx", "npm error could not determine executable to run")],
    "npm-permission": [("npx", "npm ERR! code EACCES\nnpm ERR! syscall open\nnpm ERR! path /home/a/.npm/_cacache/x")],
    "npm-cache": [
        ("npx", "npm error code ENOTEMPTY\nnpm error syscall rename"),
        ("npx", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/a/.npm/_npx/705d/x.js"),
    ],
    "npm-network": [("npx", "npm error code EAI_AGAIN\nnpm error network request failed")],
    "node-too-old": [
        ("npx", "npm error code EBADENGINE\nnpm error engine Unsupported engine"),
        ("node", "SyntaxError: Unexpected token '??='"),
        ("npx", "ReferenceError: File is not defined"),
        ("npx", "TypeError: Object.groupBy is not a function"),
    ],
    "docker-permission": [("docker", "permission denied while trying to connect to the Docker daemon socket")],
    "docker-not-running": [
        ("docker", "docker: Cannot connect to the Docker daemon at unix:///x.sock. Is the docker"),
    ],
    "docker-terminal": [("docker", "the input device is not a TTY")],
    "docker-no-image": [("podman", "Error response from daemon: pull access denied for x, repository does not exist")],
    "python-too-old": [
        ("uvx", "Because the requested Python version (>=3.11) does not satisfy Python>=3.13"),
        ("python", "ERROR: Package 'x' requires a different Python: 3.11.7 not in '>=3.12'"),
    ],
    "pypi-other-program": [("uvx", "- ppt_mcp_server\nUse `uvx --from office-mcp ppt_mcp_server` instead.")],
    "pypi-no-program": [("uvx", "An executable named `nothere` is not provided by package `mcp-server-time`.")],
    "pypi-no-package": [("uvx", "  cause: Because nothing-here was not found in the package registry")],
    "pypi-network": [
        ("uvx", "error: Request failed after 3 retries\n  cause: error sending request for url (https://x)")
    ],
    "pypi-unsolvable": [("uvx", "error: No solution found when resolving tool dependencies")],
    "browser-missing": [
        ("npx", "Error: browserType.launch: Executable doesn't exist at /home/a/chrome"),
        ("npx", "Error: Chromium distribution 'chrome' is not found at /opt/google/chrome/chrome"),
    ],
    "directory-missing": [
        ("npx", "Error accessing directory /no/such: Error: ENOENT: no such file or directory, stat '/no/such'"),
        ("uvx", "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.db'"),
    ],
    "port-in-use": [
        ("node", "Error: listen EADDRINUSE: address already in use 127.0.0.1:3000"),
        ("python", "OSError: [Errno 98] Address already in use"),
    ],
    "program-missing": [("node", "Error: spawn npx ENOENT\n    at ChildProcess"), ("sh", "sh: 1: uvx: not found")],
    "variable-missing": [
        ("npx", "GITHUB_PERSONAL_ACCESS_TOKEN environment variable not set"),
        ("npx", "Error: BRAVE_API_KEY environment variable is required"),
        ("uvx", "KeyError: 'SLACK_BOT_TOKEN'"),
        ("npx", "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables"),
        ("uvx", "Missing required environment variables: CONFLUENCE_URL"),
    ],
    "tls-not-trusted": [
        ("node", "Error: self-signed certificate in certificate chain"),
        ("uvx", "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        ("uvx", "  cause: error sending request for url (https://x)\n  cause: invalid peer certificate: UnknownIssuer"),
    ],
    "host-not-found": [("node", "Error: getaddrinfo ENOTFOUND db.example")],
    "service-refuses": [("npx", "Error: connect ECONNREFUSED 127.0.0.1:5432")],
    "credentials-refused": [("npx", "HttpError: Bad credentials")],
    "out-of-memory": [("node", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory")],
    "library-missing": [("./x", "./x: error while loading shared libraries: libssl.so.1.1: cannot open")],
    "wrong-architecture": [("./x", "cannot run ./x: Exec format error")],
    "module-missing": [
        ("python", "ModuleNotFoundError: No module named 'pandas'"),
        ("node", "Error: Cannot find module '/x/index.js'"),
        ("python", "/usr/bin/python3: No module named my_server"),
    ],
}
"""By code: the command that starts a server, and what such servers have said."""


def server(command: str = "uvx", *args: str, **more: Any) -> ServerSettings:
    return ServerSettings.model_validate({"command": command, "args": list(args), **more})


@pytest.mark.parametrize(
    ("code", "command", "said"),
    [(code, *one) for code, several in SAID.items() for one in several],
    ids=lambda value: str(value)[:40],
)
def test_a_breakage_is_recognised_and_says_what_to_do(code: str, command: str, said: str) -> None:
    found = recognise("x", server(command, "package"), f"some line\n{said}\nand the end\n", {})
    assert found is not None
    assert found.code == code
    assert found.what
    assert found.fix
    assert "{it}" not in found.what + found.why + found.fix


def test_every_row_of_the_table_has_an_example() -> None:
    assert {known.code for known in KNOWN} == SAID.keys()
    assert len({known.code for known in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize(
    "said",
    ["", "Server running on stdio", "INFO: Secure MCP Filesystem Server", "Error [ERR_INVALID_ARG]: no", "exit code 1"],
)
def test_what_is_not_known_is_not_guessed(said: str) -> None:
    assert recognise("x", server("npx", "-y", "package"), said, {}) is None


_WORDS = st.sampled_from([one for several in SAID.values() for _, one in several])


@given(st.lists(st.one_of(st.text(max_size=200), _WORDS), max_size=5).map("\n".join))
def test_no_text_is_too_odd(said: str) -> None:
    """Servers say anything."""
    for command in ("uvx", "npx", "docker", "python", "./own"):
        recognise("x", server(command, "run", said[:50].replace("\0", "")), said, {"A_B": "1"})


def test_long_lines_take_no_time() -> None:
    said = "missing " * 4000 + "A" * 8000 + "_" * 8000 + "Required " * 4000
    assert recognise("x", server("npx", "-y", "package"), said, {}) is None


def test_a_server_of_the_older_sdk_gets_it_pinned() -> None:
    said = SAID["pypi-mcp-2"][0][1]
    found = recognise("x", server("uvx", "mcp-server-sqlite", "--db-path", "a.db"), said, {})
    assert found is not None
    assert found.edit is not None
    assert (found.edit.args, found.edit.at) == (("--with", "mcp<2"), 0)
    found = recognise("x", server("uv", "tool", "run", "mcp-server-sqlite"), said, {})
    assert found is not None
    assert found.edit is not None
    assert found.edit.at == 2
    for settings in (server("uvx", "--with", "mcp<2", "x"), server("python", "-m", "x"), server("pipx", "run", "x")):
        found = recognise("x", settings, said, {})
        assert found is not None
        assert found.edit is None


def test_a_variable_that_the_bridge_has_is_handed_over() -> None:
    said = "GITHUB_PERSONAL_ACCESS_TOKEN environment variable not set"
    found = recognise("x", server("npx", "-y", "p"), said, {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_do_not_show_this"})
    assert found is not None
    assert found.edit is not None
    assert (found.edit.key, found.edit.value) == (
        ("env", "GITHUB_PERSONAL_ACCESS_TOKEN"),
        "${GITHUB_PERSONAL_ACCESS_TOKEN}",
    )
    assert "ghp_do" not in repr(found)
    found = recognise("x", server("npx", "-y", "p"), said, {})
    assert found is not None
    assert found.edit is None
    assert "Set it" in found.fix


def test_a_newer_python_is_asked_for_by_the_version_that_it_takes() -> None:
    found = recognise("x", server("uvx", "p"), SAID["python-too-old"][0][1], {})
    assert found is not None
    assert found.edit is not None
    assert found.edit.args == ("--python", "3.13")


def test_the_name_of_the_program_is_taken_from_the_message() -> None:
    found = recognise("x", server("uvx", "office-mcp", "--a"), SAID["pypi-other-program"][0][1], {})
    assert found is not None
    assert found.edit is not None
    assert (found.edit.args, found.edit.instead) == (("--from", "office-mcp", "ppt_mcp_server"), "office-mcp")
