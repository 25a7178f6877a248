"""What `git-cli`, `gh-cli` and `gws-cli` have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from mcpbridge.builtin.cli_running import Running
from mcpbridge.builtin.cli_settings import CliSettings
from mcpbridge.builtin.cli_table import Verdict
from mcpbridge.conduct import CallSettings
from mcpbridge.errors import BridgeError
from mcpbridge.model import Call
from mcpbridge.sandbox.job import Runner
from mcpbridge.wire.body import Body

__all__ = ["CliTool"]

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
