"""`git-cli`: git in the configured repositories. Reading needs nobody's agreement, a change needs a person's.

The arguments are judged by a table (`commands.py`), the repository is found beforehand (`repository.py`), and whatever
its configuration could start is neutralised (`hardening.py`). That holds with a sandbox and without one.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mcpbridge.base.errors import BridgeError, NotPermitted, PathRefused
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.sandbox.job import Access
from mcpbridge.tools.builtin.programs.allow_list import Verdict, judge
from mcpbridge.tools.builtin.programs.cli_tool import CHANGES_ELSEWHERE, CliTool, present, text_argument
from mcpbridge.tools.builtin.programs.command_line import words_of
from mcpbridge.tools.builtin.programs.git.commands import GIT
from mcpbridge.tools.builtin.programs.git.hardening import (
    LISTING,
    Entry,
    entries_of,
    environment,
    neutral,
    settings_for,
    submodules_of,
)
from mcpbridge.tools.builtin.programs.git.repository import Place, check_files, check_nested, folder_of, place_of, whole
from mcpbridge.tools.builtin.programs.settings import GitCliSettings

_ANYWHERE = (("clone",), ("init",), ("version",))
"""What is not done in a repository that is there."""

_LARGEST_MODULES, _LARGEST_CONFIGURATION, _LARGEST_LISTING = 1 << 20, 4 << 20, 64 << 20
"""Bytes of a `.gitmodules`, and of what git lists for us: settings, and anything else."""
_FROM_OUTSIDE = ("SSH_AUTH_SOCK", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy", "SSL_CERT_FILE",
                 "GIT_SSL_CAINFO")  # fmt: skip

_DEFINITION: dict[str, Any] = {
    "name": "git-cli",
    "title": "Git",
    "description": (
        "Run one git sub-command, such as `log -n 5 --oneline`, `diff HEAD~1 --stat`, `show HEAD:README.md`, `blame "
        "-L 1,20 src/a.py`. No shell: no pipes or redirections. Reading (status, log, diff, show, blame, grep, branch, "
        "tag, ls-files, …) runs at once; changing (add, commit, checkout, merge, fetch, push, …) asks a person. "
        "Options that run programs or reach outside of the repository are refused. Long output is cut."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The sub-command with its options."},
            "directory": {
                "type": "string",
                "description": "Directory of the repository, or one in it: absolute, or below a configured one.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    "annotations": CHANGES_ELSEWHERE,
}


class GitCli(CliTool[GitCliSettings]):
    """The tool; `settings.repositories` are absolute."""

    name, program, definition = "git-cli", "git", _DEFINITION

    def asks(self, call: Call) -> str:
        """Why a person must agree to this call; empty: nobody needs to, or `run` refuses it."""
        try:
            verdict = self._verdict(call)
            where = folder_of(text_argument(call, "directory"), self._settings.repositories)[0]
        except BridgeError:
            return ""
        return self._running.question(verdict, str(where))

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        verdict = self._verdict(call)
        self._running.program_file()
        given = text_argument(call, "directory")
        if verdict.command.words in _ANYWHERE:
            directory = str((await asyncio.to_thread(folder_of, given, self._settings.repositories))[0])
            variables, keys = {"GIT_CEILING_DIRECTORIES": str(Path(directory).parent)}, []
            paths: tuple[str, ...] = (directory,)
        else:
            place = await asyncio.to_thread(place_of, given, self._settings.repositories)
            entries = await self._entries(place)
            blames = verdict.command.words == ("blame",)
            await asyncio.to_thread(check_files, place, entries, self._settings.repositories, blames=blames)
            if verdict.level == "write":
                await check_nested(place, self._settings.repositories, self._read)
            keys = [entry.key for entry in entries]
            directory, variables, paths = place.directory, place.variables, place.paths
        env = {
            **self._environment(verdict),
            **variables,
            **settings_for(await asyncio.to_thread(neutral, keys), *await self._own_settings(verdict, keys)),
        }
        ran = await self._running.run(
            verdict.argv, env, in_sandbox=self._settings.sandbox, cwd=directory, access=_access(paths, verdict)
        )
        return self._running.result(ran, verdict)

    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """
        verdict = judge(GIT, words_of(text_argument(call, "command")))
        self._running.check(verdict)
        if verdict.command.network and not self._settings.network:
            raise NotPermitted(
                f"`git {verdict.command.words[0]}` needs the network, and `network` of `[builtin.git_cli]` is off"
            )
        if verdict.command.words == ("shortlog",) and not verdict.positionals and "--all" not in verdict.given:
            # Without a revision it would read its standard input.
            place = verdict.argv.index("--") if "--" in verdict.argv else len(verdict.argv)
            verdict = replace(verdict, argv=(*verdict.argv[:place], "HEAD", *verdict.argv[place:]))
        return verdict

    def _environment(self, verdict: Verdict) -> dict[str, str]:
        made = environment(_path())
        if verdict.command.network:
            made["GIT_ALLOW_PROTOCOL"] = "https:ssh"
            made |= {name: os.environ[name] for name in _FROM_OUTSIDE if name in os.environ}
        return made

    async def _entries(self, place: Place) -> list[Entry]:
        """The repository's configuration, and keys that say how its submodules are met.

        Raises:
            PathRefused: its configuration cannot be read.
        """
        listed = await self._read(LISTING, place)
        return await asyncio.to_thread(_settings_in, listed, place.tree)

    async def _read(self, argv: tuple[str, ...], place: Place) -> bytes:
        """What git says to something that reads no content and starts nothing; see `Reader`."""
        fixed = {} if argv == LISTING else settings_for({})  # those would be listed as well
        output_limit = _LARGEST_CONFIGURATION if argv == LISTING else _LARGEST_LISTING
        env = {**environment(_path()), **place.variables, **fixed}
        access = Access(read_only=place.paths)
        in_sandbox = self._settings.sandbox
        ran = await self._running.run(
            ("--no-pager", *argv),
            env,
            in_sandbox=in_sandbox,
            cwd=place.directory,
            access=access,
            output_limit=output_limit,
        )
        if ran.ended != "exit" or ran.code != 0 or ran.cut[0]:
            raise PathRefused(
                f"`git {argv[0]}` gives no usable answer in {place.directory}: it is broken, or too large"
            )
        return ran.stdout

    async def _own_settings(self, verdict: Verdict, keys: Sequence[str]) -> list[tuple[str, str]]:
        """Settings of the user that a call may need: what knows the passwords, and who commits."""
        if verdict.level == "read":
            return []
        more: list[tuple[str, str]] = []
        if verdict.command.network and self._settings.credential_helper:
            more.append(("credential.helper", self._settings.credential_helper))
        if "user.email" not in keys:
            name, _, mail = self._settings.author.rstrip(">").partition(" <")
            own = {"user.name": name, "user.email": mail} if mail else await self._own_name()
            more += own.items()
        return more

    async def _own_name(self) -> dict[str, str]:
        """Name and address of the user's own configuration of git, which is no repository's."""
        env = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "PATH") if name in os.environ}
        found: dict[str, str] = {}
        for key in ("user.name", "user.email"):
            ran = await self._running.run(("config", "--global", "--get", key), env, in_sandbox="never")
            if ran.code == 0 and ran.stdout.strip():
                found[key] = ran.stdout.decode("utf-8", "replace").strip()
        return found


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def _access(paths: tuple[str, ...], verdict: Verdict) -> Access:
    if verdict.level == "read":
        return Access(read_only=paths)
    network = verdict.command.network
    keys = (str(Path.home() / ".ssh"), os.environ.get("SSH_AUTH_SOCK", "")) if network else ()
    return Access(network=network, read_only=present(*keys), read_write=paths)


def _settings_in(listed: bytes, tree: str) -> list[Entry]:
    """What `LISTING` told, and keys for the submodules of a working tree (empty: there is none)."""
    names = submodules_of(_modules(tree)) if tree else []
    more = [Entry(f"submodule.{name}.{key}", "") for name in names for key in ("ignore", "update")]
    return entries_of(listed) + more


def _modules(tree: str) -> str:
    """The text of `.gitmodules`, if it is a file that can be read.

    Raises:
        PathRefused: it is very large, or something else.
    """
    try:
        return whole(Path(tree, ".gitmodules"), _LARGEST_MODULES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
