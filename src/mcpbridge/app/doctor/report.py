"""What an examination has found, as values: one report of everything, one of each server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpbridge.app.doctor.finding import Finding, Level, worst
from mcpbridge.app.doctor.machine import Machine


@dataclass(frozen=True, slots=True)
class ServerReport:
    """How one server is. Times in milliseconds from its start, memory in bytes; None: not known."""

    name: str
    is_ready: bool
    state: str = ""
    """What is wrong with one that is not ready, or what a running bridge says of its state."""
    transport: str = ""
    era: str = ""
    revision: str = ""
    answered_ms: int | None = None
    listed_ms: int | None = None
    tools: int = 0
    prompts: int = 0
    resources: int = 0
    templates: int = 0
    tokens: int | None = None
    """What its tools cost a model's context, as they are sent."""
    memory: int | None = None
    stderr: tuple[str, ...] = ()
    """The last lines of one that failed."""

    @property
    def is_known(self) -> bool:
        """It is known whether it works: it was tried, or is running."""
        return self.is_ready or bool(self.state)

    def as_json(self, findings: list[dict[str, Any]]) -> dict[str, Any]:
        """The same as JSON values, with what was found of it."""
        counts = {kind: getattr(self, kind) for kind in ("tools", "prompts", "resources", "templates")}
        measured = {name: getattr(self, name) for name in ("answered_ms", "listed_ms", "tokens", "memory")}
        told = {"transport": self.transport, "era": self.era, "protocol": self.revision}
        stderr = {"stderr": list(self.stderr)} if self.stderr else {}
        state = {} if self.is_ready else {"state": self.state}
        return {"name": self.name, "ok": self.is_ready, **state, **told, **measured, **counts, **stderr} | {
            "findings": findings
        }


@dataclass(frozen=True, slots=True)
class ToolReport:
    """How a tool is that no server has: a table of `[tools]`, a pack, or a built-in one."""

    id: str
    """`tools/weather`, `builtin/web-search`; a pack goes by `tools/PACK`."""
    kind: str
    """Of the backend; `builtin` is one of the bridge's own."""
    is_ready: bool
    detail: str = ""
    """What was found, a line."""

    @property
    def name(self) -> str:
        """Without the section that it is in."""
        return self.id.partition("/")[2]

    def as_json(self, findings: list[dict[str, Any]]) -> dict[str, Any]:
        """The same as JSON values, with what was found of it."""
        told = {"name": self.name, "kind": self.kind, "ok": self.is_ready, "detail": self.detail}
        return {**told, "findings": findings}


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    config: str
    """The path of the configuration."""
    machine: Machine
    servers: tuple[ServerReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    """In the order of the sections; those of a server carry its name."""
    running: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the daemon of this configuration says of itself; empty: none runs."""
    is_started: bool = True
    """The servers were started for this; else it is what the daemon says of its own."""
    tools: tuple[ToolReport, ...] = ()
    """Tools that no server has."""

    @property
    def level(self) -> Level:
        """The gravest thing found."""
        return worst(self.findings)

    @property
    def are_servers_ready(self) -> bool:
        """Every server works, as far as that is known."""
        return not any(server.is_known and not server.is_ready for server in self.servers)

    @property
    def are_tools_ready(self) -> bool:
        """All tools of `[tools]` and packs work. A built-in one may lack what it works with."""
        return not any(finding.level == "fail" for finding in self.findings if finding.about == "tools")

    def of(self, server: str) -> Iterator[Finding]:
        """What was found of one server, or tool by its id; with an empty name, of none in particular."""
        return (finding for finding in self.findings if finding.server == server)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "config": self.config,
            "ok": self.are_servers_ready and self.are_tools_ready,
            "level": self.level,
            "started": self.is_started,
            "servers": [server.as_json([one.as_json() for one in self.of(server.name)]) for server in self.servers],
            "tools": [tool.as_json([one.as_json() for one in self.of(tool.id)]) for tool in self.tools],
            "findings": [one.as_json() for one in self.of("")],
            "machine": self.machine.as_json(),
            "daemon": dict(self.running) or None,
        }
