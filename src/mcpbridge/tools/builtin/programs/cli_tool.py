"""The base of tools that run a program: a call is judged first, and a person is asked before it changes anything.

`ServiceCli` is for programs that are signed in to a service (`gh.py`, `gws.py`). git has more to prepare, see
`git/git.py`. `run.py` runs what was allowed.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from mcpbridge.base.errors import ArgumentsRefused, BridgeError
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.sandbox.job import Access, Runner
from mcpbridge.tools.builtin.programs.allow_list import Verdict
from mcpbridge.tools.builtin.programs.run import Running
from mcpbridge.tools.builtin.programs.settings import CliSettings, GhCliSettings, GwsCliSettings

_Settings = TypeVar("_Settings", bound=CliSettings)


class CliTool(ABC, Generic[_Settings]):
    """What the tools that run a program have in common: its calls are judged before anything is done."""

    name: ClassVar[str]
    program: ClassVar[str]
    definition: ClassVar[dict[str, Any]]
    """See `Builtin`."""

    def __init__(self, settings: _Settings, runner: Callable[[], Runner]) -> None:
        """`runner`: the sandbox."""
        self._settings = settings
        self._running = Running(self.name, self.program, settings, runner)

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`. The permission of a call is what `asks` says."""
        return self._running.treatment

    def asks(self, call: Call) -> str:
        """Why a person must agree to this call; empty: nobody needs to, or `run` refuses it."""
        try:
            return self._running.question(self._verdict(call))
        except BridgeError:
            return ""

    @abstractmethod
    async def run(self, call: Call) -> Body:
        """See `Builtin`."""

    @abstractmethod
    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """


_ServiceSettings = TypeVar("_ServiceSettings", bound=GhCliSettings | GwsCliSettings)


class ServiceCli(CliTool[_ServiceSettings]):
    """A program that is signed in to a service: what it is given, and how it is kept quiet, is data of the class."""

    passed: ClassVar[tuple[str, ...]]
    """Variables of the bridge that it signs in with; how the network and a keyring are reached is passed on as well."""
    quiet: ClassVar[Mapping[str, str]]
    """Variables that keep it from questions, pagers, browsers and editors."""
    folder_variable: ClassVar[str]
    """The variable that names the folder of its configuration, which is left as it is."""

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        verdict = self._verdict(call)
        folder = self._folder()
        env = {name: os.environ[name] for name in (*self.passed, *_PASSED_TO_ALL) if name in os.environ}
        env |= {
            **self.quiet,
            "PATH": os.environ.get("PATH", os.defpath),
            self.folder_variable: folder,
            **self._variables(),
        }
        if self._settings.sandbox == "never":
            env["HOME"] = str(Path.home())  # some systems' keyrings are found by it
        access = Access(network=True, read_only=present(folder, *self._readable()))
        ran = await self._running.run(
            verdict.argv, env, in_sandbox=self._settings.sandbox, access=access, files=self._files()
        )
        return self._running.result(ran, verdict)

    @abstractmethod
    def _folder(self) -> str:
        """Where its configuration is."""

    def _variables(self) -> Mapping[str, str]:
        """Variables that the settings ask for."""
        return {}

    def _readable(self) -> tuple[str, ...]:
        """Paths beside its configuration that it reads, if they are there."""
        return ()

    def _files(self) -> Mapping[str, bytes]:
        """Files that it finds where it works."""
        return {}


_PASSED_TO_ALL = (
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


def one_command(description: str) -> dict[str, Any]:
    """The input schema of a tool that takes a command line and nothing else."""
    return {
        "type": "object",
        "properties": {"command": {"type": "string", "minLength": 1, "description": description}},
        "required": ["command"],
        "additionalProperties": False,
    }


CHANGES_ELSEWHERE = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""Annotations of a program that can change something over the network."""


def present(*paths: str) -> tuple[str, ...]:
    """Those of these paths that are there."""
    return tuple(one for one in paths if one and Path(one).exists())


def text_argument(call: Call, name: str) -> str:
    """A text of the call's arguments; empty: it has none.

    Raises:
        ArgumentsRefused: it is something else.
    """
    arguments = call.params.inner("arguments")
    raw = arguments.get(name) if arguments is not None else None
    if raw is None:
        return ""
    try:
        value = msgspec.json.decode(raw, type=str | None)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ArgumentsRefused(f"`{name}` is not a text") from None
    return value or ""
