"""The official suite: where it is, which names it asks for, what it demands, and how to run it.

Its server scenarios have the fixture's names built in, and a bridge prefixes names. So a copy of the suite, written
beside it in `node_modules`, asks for the prefixed ones.
"""

import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

__all__ = ["PREFIX", "REVISIONS", "Suite"]

HERE = Path(__file__).resolve().parent

PREFIX = "up__"
"""What the bridge puts before the names of the server `up`."""

REVISIONS = {"2025-06-18": 27, "2025-11-25": 30, "2026-07-28": 37}
"""The revisions that the suite scores, and how many server scenarios it has for each."""

_SCENARIO_DEADLINE = 20_000
"""Milliseconds; generous, for busy machines."""
_RUN_DEADLINE = 400
"""Seconds."""
_FIXTURE = re.compile(r"(?<![A-Za-z0-9_])(?:test_[a-z0-9_]+|json_schema_2020_12_tool)(?![A-Za-z0-9_])")


@dataclass(frozen=True)
class Suite:
    """The installed suite."""

    home: Path = HERE / "node"

    @property
    def _package(self) -> Path:
        return self.home / "node_modules/@modelcontextprotocol/conformance/dist"

    def _command(self, entry: str) -> list[str]:
        return [str(self.home / "node_modules/.bin/node"), str(self._package / entry)]

    def prepare(self) -> None:
        """Write the copy that asks for prefixed names."""
        original = (self._package / "index.js").read_text("utf-8")
        prefixed = _FIXTURE.sub(lambda name: PREFIX + name[0], original)
        (self._package / "prefixed.js").write_text(prefixed, "utf-8")

    def ask_server(self, url: str, revision: str, into: Path, *, prefixed: bool) -> None:
        """Run all server scenarios of a revision; the results lie in the folder."""
        chosen = ["--requirements", revision] if revision > "2025-06-18" else ["--suite", "all"]
        if revision <= "2025-06-18":  # no frozen set: all that applies to it
            chosen += ["--spec-version", revision]
        command = [*self._command("prefixed.js" if prefixed else "index.js"), "server", "--url", url, *chosen]
        self._run([*command, "--timeout", str(_SCENARIO_DEADLINE)], into)

    def ask_client(self, client: list[str], scenario: str, revision: str, into: Path) -> None:
        """Run one client scenario: the suite serves, and starts the client with the URL as its last argument."""
        chosen = ["--scenario", scenario, "--spec-version", revision, "--force"]
        command = [*self._command("index.js"), "client", "--command", shlex.join(client), *chosen]
        self._run([*command, "--timeout", str(2 * _SCENARIO_DEADLINE)], into)

    def _run(self, command: list[str], into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        with (into / "suite.log").open("ab") as log:
            subprocess.run(
                [*command, "--output-dir", str(into)], stdout=log, stderr=log, timeout=_RUN_DEADLINE, check=False
            )  # its exit code only says that something failed; what did is in the results

    def scored(self, revision: str, side: Literal["server", "client"]) -> list[str]:
        """The scenarios of the frozen set of a revision; none where it has no such set."""
        listed = self._requirements(revision)
        part = listed.partition("Client scenarios")[0 if side == "server" else 2].partition("Run and reported")[0]
        return re.findall(r"^  - (\S+)$", part, re.MULTILINE)

    def _requirements(self, revision: str) -> str:
        return "" if revision <= "2025-06-18" else _listed(tuple(self._command("index.js")), revision)


@cache
def _listed(command: tuple[str, ...], revision: str) -> str:
    asked = subprocess.run(
        [*command, "list", "--requirements", revision], capture_output=True, text=True, timeout=60, check=True
    )
    return asked.stdout
