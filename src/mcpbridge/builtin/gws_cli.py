"""`gws-cli`: the command line of Google Workspace, with the sign-in that the user gave it.

What only reads (`list`, `get` and a few more) needs nobody; every other method needs a person's agreement. It works in
an empty directory: it takes further variables from a `.env` file otherwise, there or in a directory above.
"""

import os
from pathlib import Path
from typing import Any

from mcpbridge.builtin.cli_running import present, text_argument
from mcpbridge.builtin.cli_settings import GwsCliSettings
from mcpbridge.builtin.cli_table import Verdict
from mcpbridge.builtin.cli_tool import CliTool
from mcpbridge.builtin.cli_words import words_of
from mcpbridge.builtin.gws_table import judge_gws
from mcpbridge.model import Call
from mcpbridge.sandbox.job import Access
from mcpbridge.wire.body import Body

__all__ = ["GwsCli"]

_PASSED = (
    "GOOGLE_WORKSPACE_CLI_TOKEN", "GOOGLE_WORKSPACE_CLI_CREDENTIALS_FILE", "GOOGLE_WORKSPACE_CLI_CLIENT_ID",
    "GOOGLE_WORKSPACE_CLI_CLIENT_SECRET", "GOOGLE_WORKSPACE_CLI_KEYRING_BACKEND", "GOOGLE_WORKSPACE_PROJECT_ID",
    "GOOGLE_WORKSPACE_CLI_SANITIZE_TEMPLATE", "GOOGLE_WORKSPACE_CLI_SANITIZE_MODE", "HTTPS_PROXY", "HTTP_PROXY",
    "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA",
)  # fmt: skip
"""What gws signs in with, and how it reaches the network."""

_QUIET = {"BROWSER": "false", "PAGER": "cat", "EDITOR": "false", "VISUAL": "false", "NO_COLOR": "1", "TERM": "dumb",
          "LC_ALL": "C.UTF-8"}  # fmt: skip

_DEFINITION: dict[str, Any] = {
    "name": "gws-cli",
    "title": "Google Workspace",
    "description": (
        "Run one command of Google Workspace's `gws`: SERVICE RESOURCE METHOD, such as `drive files list --params "
        '\'{"pageSize": 10}\'`, `gmail users messages get --params \'{"userId": "me", "id": "…"}\'`; `schema '
        "drive.files.list` tells of a method. No shell. Methods that list or get run at once; all others ask a person. "
        "Sign-in, uploads and files are refused. Long output is cut."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "description": "The command without `gws`; JSON in single quotes.",
            }
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
}


class GwsCli(CliTool[GwsCliSettings]):
    """The tool."""

    name, program, definition = "gws-cli", "gws", _DEFINITION

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        verdict = self._verdict(call)
        settings = os.environ.get("GOOGLE_WORKSPACE_CLI_CONFIG_DIR") or str(Path.home() / ".config" / "gws")
        env = {**_QUIET, **{name: os.environ[name] for name in _PASSED if name in os.environ}}
        env |= {"PATH": os.environ.get("PATH", os.defpath), "GOOGLE_WORKSPACE_CLI_CONFIG_DIR": settings}
        if self._settings.sandbox == "never":
            env["HOME"] = str(Path.home())  # some systems' keyrings are found by it
        places = (settings, os.environ.get("GOOGLE_WORKSPACE_CLI_CREDENTIALS_FILE", ""))
        access = Access(network=True, read_only=present(*places))
        files = {".env": b""}  # found first: no other one is looked for in the directories above
        ran = await self._running.run(verdict.argv, env, in_sandbox=self._settings.sandbox, access=access, files=files)
        return self._running.result(ran, verdict)

    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """
        verdict = judge_gws(words_of(text_argument(call, "command")))
        self._running.check(verdict)
        return verdict
