"""Servers that a search of the clients' files found, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mcpbridge.app.client_config.clients import Place, Scope

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """Where a search takes place."""

    environ: Mapping[str, str] = field(repr=False)
    home: Path
    platform: str
    """As `sys.platform` says it."""

    project: Path | None = None
    """The directory whose project files count; None: none do."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server in one file, in our words."""

    client: str
    """The client's id; empty for a file that no known client has."""

    title: str
    """What people call the client, or `file`."""

    scope: Scope
    file: Path
    line: int | None
    name: str
    """As it is in the file."""

    server: Json = field(repr=False)
    """What `servers.toml` would say, unchecked, secrets and all; empty if `skipped`."""

    left_out: Json = field(default_factory=dict[str, object], repr=False)
    """What has no counterpart here; perhaps with secrets."""

    notes: tuple[str, ...] = ()
    """What was assumed, and what there is to do; for people."""

    skipped: str = ""
    """Why it cannot be served."""

    project: Path | None = None
    """The project that it belongs to."""

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, or worth knowing of it."""

    file: Path
    message: str
    """Without the file, but with the line where that is known; never a value."""

    client: str = ""
    is_error: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came upon."""

    places: tuple[Place, ...] = ()
    """Files that are there, in the order of the search."""

    servers: tuple[FoundServer, ...] = ()
    problems: tuple[Problem, ...] = ()


def together(searches: Iterable[Found]) -> Found:
    """What several searches came upon, in their order."""
    several = list(searches)
    return Found(
        tuple(place for one in several for place in one.places),
        tuple(server for one in several for server in one.servers),
        tuple(problem for one in several for problem in one.problems),
    )
