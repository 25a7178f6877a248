"""`gws-cli`: the command line of Google Workspace, with the user's sign-in; what may be called, and what is refused.

gws makes its commands from the descriptions of Google's interfaces: `gws SERVICE RESOURCE… METHOD`. So methods are not
listed one by one: a few that only read are known by name (`list`, `get` …), every other one needs a person's agreement.

It works in an empty directory: otherwise it takes further variables from a `.env` file, there or in a directory above.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.model import Call
from mcpbridge.tools.builtin.programs.allow_list import Command, Level, Program, Verdict, command, judge
from mcpbridge.tools.builtin.programs.cli_tool import CHANGES_ELSEWHERE, ServiceCli, one_command, text_argument
from mcpbridge.tools.builtin.programs.command_line import display_command, words_of
from mcpbridge.tools.builtin.programs.settings import GwsCliSettings

SERVICES = (
    "drive",
    "sheets",
    "gmail",
    "calendar",
    "admin-reports",
    "reports",
    "docs",
    "slides",
    "tasks",
    "people",
    "chat",
    "classroom",
    "forms",
    "keep",
    "meet",
    "events",
)
"""What is called by name. Others, and `service:version`, would reach anything that the token is good for."""

READS = frozenset({"list", "get", "batchGet", "batch-get", "getProfile", "get-profile", "export", "search"})
"""Methods that change nothing."""

_OUTPUT_OPTIONS = "--format:text --dry-run"
_METHOD = (
    "--params:json --page-all --page-limit:number --page-delay:number --api-version:version "
    f"{_OUTPUT_OPTIONS} -v --verbose"
)
_HELPERS: tuple[Command, ...] = (
    command("sheets +read", f"--spreadsheet:text --range:text {_OUTPUT_OPTIONS}", network=True),
    command(
        "calendar +agenda",
        f"--today --tomorrow --week --days:number --calendar:text --timezone:text {_OUTPUT_OPTIONS}",
        network=True,
    ),
    command("gmail +triage", f"--max:number --query:text --labels {_OUTPUT_OPTIONS}", network=True),
    command("gmail +read", f"--id:text --message-id:text --headers --html {_OUTPUT_OPTIONS}", network=True),
    command("workflow +standup-report", _OUTPUT_OPTIONS, network=True),
    command("workflow +meeting-prep", f"--calendar:text {_OUTPUT_OPTIONS}", network=True),
    command("workflow +weekly-digest", _OUTPUT_OPTIONS, network=True),
    command(
        "gmail +send",
        "--to:text --cc:text --bcc:text --subject:text --body:text --html --dry-run",
        level="write",
        network=True,
        wants="--to",
    ),
    command("gmail +reply", "--message-id:text --body:text --cc:text --html --dry-run", level="write", network=True),
    command("gmail +reply-all", "--message-id:text --body:text --html --dry-run", level="write", network=True),
    command("gmail +forward", "--message-id:text --to:text --body:text --html --dry-run", level="write", network=True),
    command(
        "sheets +append",
        "--spreadsheet:text --values:text --json-values:text --range:text --dry-run",
        level="write",
        network=True,
    ),
    command("docs +write", "--document:text --text:text --dry-run", level="write", network=True),
    command("chat +send", "--space:text --text:text --dry-run", level="write", network=True),
    command(
        "calendar +insert",
        """--summary:text --start:text --end:text --calendar:text --location:text
        --description:text --attendee:text --meet --dry-run""",
        level="write",
        network=True,
    ),
    command("workflow +email-to-task", "--message-id:text --tasklist:text --dry-run", level="write", network=True),
    command(
        "workflow +file-announce", "--file-id:text --space:text --message:text --dry-run", level="write", network=True
    ),
    command("schema", "--resolve-refs", "method", needs=1, network=True),
    command("auth status", "", network=True),
)

_HERE = "it reads or writes files of this machine"
_SIGNED_IN = "who is signed in, and the tokens, are not for the caller"

NEVER: dict[tuple[str, ...], str] = {
    **{("auth", one): _SIGNED_IN for one in ("login", "logout", "setup", "export", "import", "list", "default", "use")},
    ("generate-skills",): _HERE,
    ("mcp",): "it is a server of its own",
    ("drive", "+upload"): _HERE,
    ("drive", "+download"): _HERE,
    ("script",): "it changes programs that run",
    ("vertex",): "it is not Workspace",
    ("aiplatform",): "it is not Workspace",
    ("modelarmor",): "it sends texts elsewhere",
    ("gmail", "+watch"): "it does not end",
    ("events", "+subscribe"): "it does not end",
    ("events", "+renew"): "it is for subscriptions that do not end",
}
"""What nobody can allow, and why."""

NEVER_OPTIONS = {
    **dict.fromkeys(
        ("-o", "--output", "--upload", "--upload-content-type", "--attach", "-a", "--file", "--output-dir", "--dir"),
        _HERE,
    ),
    "--sanitize": "it sends results to a template that the caller names",
    **dict.fromkeys(("--unmasked", "--account", "--profile", "--credentials-file"), _SIGNED_IN),
    **dict.fromkeys(
        ("--help", "--version", "-h"), "it is not needed: `schema SERVICE.RESOURCE.METHOD` describes a method"
    ),
}
"""Options that no command takes here, and why."""

GWS = Program("gws", {one.words: one for one in _HELPERS}, NEVER, NEVER_OPTIONS)
"""The commands that have a name of their own; see `judge_gws` for the others."""


def judge_gws(words: Sequence[str]) -> Verdict:
    """What a command line of gws means; see `judge`.

    Raises:
        ArgumentsRefused, NotPermitted: as `judge`.
    """
    words = list(words[1:] if words[:1] == ["gws"] else words)
    path = _path_of(words)
    is_named = any(tuple(words[:length]) in known for length in (1, 2) for known in (GWS.commands, GWS.never))
    if is_named or not path or path[0] not in SERVICES or any(word.startswith("+") for word in path):
        if path and not is_named and path[0] not in SERVICES and path[0] not in ("schema", "auth", "workflow"):
            raise _unknown(path[0])
        return judge(GWS, words)
    if len(path) < 3 or len(path) > 7:
        raise ArgumentsRefused(
            f"`gws {display_command(path)}` is no call: write SERVICE RESOURCE METHOD, such as `drive files list`"
        )
    for word in path[1:]:
        if not (word.isascii() and word.replace("-", "").replace("_", "").isalnum()):
            raise ArgumentsRefused(
                f"`gws {display_command(path)}`: {display_command([word])} is no name of a resource or method"
            )
    level: Level = "read" if path[-1] in READS else "write"
    options = _METHOD if level == "read" else f"{_METHOD} --json:json"
    row = command(" ".join(path), options, level=level, network=True)
    return judge(Program("gws", {(path[0],): row}, {}, NEVER_OPTIONS), [path[0], *words[len(path) :]])


def _path_of(words: Sequence[str]) -> list[str]:
    """The words before the first option."""
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return list(words[:first])


def _unknown(service: str) -> ArgumentsRefused:
    close = nearest(service, SERVICES, limit=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ArgumentsRefused(
        f"`gws {display_command([service], 60)}` may not be called: {hint}there are {', '.join(SERVICES)}, schema"
    )


_CREDENTIALS = "GOOGLE_WORKSPACE_CLI_CREDENTIALS_FILE"
_PASSED = (
    _CREDENTIALS,
    *(
        f"GOOGLE_WORKSPACE_{name}"
        for name in (
            "CLI_TOKEN",
            "CLI_CLIENT_ID",
            "CLI_CLIENT_SECRET",
            "CLI_KEYRING_BACKEND",
            "PROJECT_ID",
            "CLI_SANITIZE_TEMPLATE",
            "CLI_SANITIZE_MODE",
        )
    ),
)

_QUIET = {"BROWSER": "false", "PAGER": "cat", "EDITOR": "false", "VISUAL": "false", "NO_COLOR": "1", "TERM": "dumb",
          "LC_ALL": "C.UTF-8"}  # fmt: skip

_DEFINITION: dict[str, Any] = {
    "name": "gws-cli",
    "title": "Google Workspace",
    "description": (
        "Run one command of Google Workspace's `gws`: SERVICE RESOURCE METHOD, such as `drive files list --params "
        '\'{"pageSize": 10}\'`, `gmail users messages get --params \'{"userId": "me", "id": "…"}\'`; `schema '
        "drive.files.list` describes a method. No shell. Methods that list or get run at once; all others ask a "
        "person. Sign-in, uploads and files are refused. Long output is cut."
    ),
    "inputSchema": one_command("The command without `gws`; JSON in single quotes."),
    "annotations": CHANGES_ELSEWHERE,
}


class GwsCli(ServiceCli[GwsCliSettings]):
    """The tool."""

    name, program, definition = "gws-cli", "gws", _DEFINITION
    passed, quiet, folder_variable = _PASSED, _QUIET, "GOOGLE_WORKSPACE_CLI_CONFIG_DIR"

    def _folder(self) -> str:
        return os.environ.get(self.folder_variable) or str(Path.home() / ".config" / "gws")

    def _readable(self) -> tuple[str, ...]:
        return (os.environ.get(_CREDENTIALS, ""),)

    def _files(self) -> Mapping[str, bytes]:
        return {".env": b""}  # found first: no other one is looked for in the directories above

    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """
        verdict = judge_gws(words_of(text_argument(call, "command")))
        self._running.check(verdict)
        return verdict
