"""What the doctor finds: one value a finding, the same for people and programs.

A finding says what, where, why and what to do, and has a code that stays the same from release to release.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Level = Literal["ok", "note", "warn", "fail"]
"""`note`: nothing is wrong, but worth knowing; `fail`: something does not work."""

About = Literal["configuration", "tools", "clients", "daemon", "machine"]

_ORDER: tuple[Level, ...] = ("ok", "note", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one server's table in servers.toml, which is certain enough to be tried."""

    server: str
    args: tuple[str, ...] = ()
    """Arguments to insert."""
    at: int = 0
    """Where among the arguments they go."""
    instead: str = ""
    """The argument, at `at`, that they take the place of; empty: none goes."""
    key: tuple[str, ...] = ()
    """The key below the server's table to set to `value`; empty: nothing is set."""
    value: str = ""

    def __str__(self) -> str:
        if self.key:
            return f'{".".join(self.key)} = "{self.value}"'
        words = " ".join(self.args)
        if self.instead:
            return f"`{self.instead}` becomes `{words}` in args" if words else f"`{self.instead}` goes from args"
        return f"`{words}` goes into args"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know."""

    code: str
    """Stable, for programs: `pypi-mcp-2`."""
    level: Level
    what: str
    """One line, a claim."""
    server: str = ""
    """The server, or the tool that no server has (`tools/weather`), that it is about; empty: none in particular."""
    where: str = ""
    """File and line, or whatever names the place."""
    why: str = ""
    fix: str = ""
    """What to do about it."""
    edit: Edit | None = field(default=None, compare=False)
    """What `--fix` would do."""
    about: About = "configuration"
    """What part of the whole it is about, if it is about no server."""

    def as_json(self) -> dict[str, Any]:
        """The members that say something, as JSON values."""
        left_out = {"edit", "about"} if self.server else {"edit"}
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        found: dict[str, Any] = {key: value for key, value in told.items() if value}
        return found | ({"edit": str(self.edit)} if self.edit is not None else {})


def worst(findings: Iterable[Finding]) -> Level:
    """The gravest level among them; `ok` when there are none."""
    return _ORDER[max((_ORDER.index(finding.level) for finding in findings), default=0)]
