"""`gh-cli`: GitHub's own program, with the sign-in that the user gave it. Reading needs nobody, the rest a person.

It works in an empty directory that is no repository, so it starts no git of a repository and reads no file of one.
"""

import os
from pathlib import Path
from typing import Any

from mcpbridge.builtin.cli_running import present, text_argument
from mcpbridge.builtin.cli_settings import GhCliSettings
from mcpbridge.builtin.cli_table import Verdict, judge
from mcpbridge.builtin.cli_tool import CliTool
from mcpbridge.builtin.cli_words import words_of
from mcpbridge.builtin.gh_table import GH
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.model import Call
from mcpbridge.sandbox.job import Access
from mcpbridge.wire.body import Body

__all__ = ["GhCli"]

_PASSED = (
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_HOST",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "SYSTEMROOT",
    "APPDATA",
    "LOCALAPPDATA",
)
"""What gh signs in with, and how it reaches the network."""

_QUIET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_NO_EXTENSION_UPDATE_NOTIFIER": "1",
    "GH_SPINNER_DISABLED": "1",
    "GH_PAGER": "cat",
    "PAGER": "cat",
    "GH_BROWSER": "false",
    "BROWSER": "false",
    "GH_EDITOR": "false",
    "GIT_EDITOR": "false",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_DIR": "/dev/null",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}
"""No questions, pager, browser, editor or repository."""

_DEFINITION: dict[str, Any] = {
    "name": "gh-cli",
    "title": "GitHub",
    "description": (
        "Run one sub-command of GitHub's `gh`, such as `pr list --repo OWNER/REPO --json number,title`, `issue view 12 "
        "--repo OWNER/REPO`, `search code …`, `api repos/OWNER/REPO/commits` (GET only). No shell. Reading runs at "
        "once; creating, commenting, merging and so on ask a person. Sign-in, configuration, extensions, files and "
        "the browser are refused. Long output is cut."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The sub-command with its options."}
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
}


class GhCli(CliTool[GhCliSettings]):
    """The tool."""

    name, program, definition = "gh-cli", "gh", _DEFINITION

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        verdict = self._verdict(call)
        settings = _directory()
        env = {**_QUIET, **{name: os.environ[name] for name in _PASSED if name in os.environ}}
        env |= {"PATH": os.environ.get("PATH", os.defpath), "GH_CONFIG_DIR": settings}
        if self._settings.repository:
            env["GH_REPO"] = self._settings.repository
        if self._settings.sandbox == "never":
            env["HOME"] = str(Path.home())  # some systems' keyrings are found by it
        access = Access(network=True, read_only=present(settings))
        ran = await self._running.run(verdict.argv, env, in_sandbox=self._settings.sandbox, access=access)
        return self._running.result(ran, verdict)

    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """
        verdict = judge(GH, words_of(text_argument(call, "command")))
        self._running.check(verdict)
        is_of_one = "--repo" in verdict.command.options and verdict.command.words[0] != "search"
        if (
            is_of_one
            and not self._settings.repository
            and not {"-R", "--repo", "-o", "--org", "-u", "--user"} & {*verdict.given}
        ):
            raise ArgumentsRefused(f"`gh {' '.join(verdict.command.words)}` needs --repo OWNER/REPO")
        return verdict


def _directory() -> str:
    """Where gh has its configuration, which is left as it is."""
    own = os.environ.get("GH_CONFIG_DIR", "")
    if own:
        return own
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return str(Path(base, "gh") if base else Path.home() / ".config" / "gh")
