"""What a sandbox is: it turns a program into the command that runs it there.

Whether one keeps what it promises is not for it to say: `canaries` finds that out.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mcpbridge.sandbox.identity import Identity
from mcpbridge.sandbox.job import Access, Limits

__all__ = ["Start", "Tier"]


class Start(Struct, frozen=True):
    """A program, and all that is known of how it is to run."""

    argv: tuple[str, ...]
    """The program as an absolute path, and its arguments."""
    cwd: str
    folder: str
    """Its private folder, which it may write."""
    limits: Limits
    access: Access
    identity: Identity
    may_fork: bool = True
    late: Mapping[str, str] = {}
    """Variables that only the program itself is given: they would change how what starts it is loaded."""
    lifeline: int | None = None
    """A descriptor whose other end closes when the bridge is gone."""
    information: int | None = None
    """A descriptor that is told the process id of the sandbox's first process, as JSON."""


class Tier(Protocol):
    """One sandbox."""

    @property
    def name(self) -> str:
        """What status and results call it."""
        ...

    @property
    def has_processes_of_its_own(self) -> bool:
        """It has a process name space: whatever is left in it ends with its first process."""
        ...

    def lacks(self) -> tuple[str, str] | None:
        """What it cannot be tried without, and what to do about that; None if it can be tried."""
        ...

    def who(self, access: Access, folder_parent: str) -> Identity:
        """As whom a job with this access runs."""
        ...

    def command(self, start: Start) -> list[str]:
        """What to execute, in a session of its own and with the environment of the program."""
        ...

    def fingerprint(self) -> Sequence[str]:
        """What, if it changes, makes the answer of the canaries out of date."""
        ...
