"""Run the tests of one module against changes of it, for `make mutants`.

The changed module stands in a copy of the sources, which the tests and the programs that they start import before the
installed one. First the tests run once on the unchanged copy, watched: each change is then tried with the tests that
run its lines, the fastest first. A change that those do not notice is tried with the others too: a test may meet what
another one cached, and a program that a test starts may run lines that are not seen.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mutation_edits import Mutant
from mutation_plugin import IMPORTED

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/mcpbridge")

Outcome = Literal["killed", "late", "broken", "survived"]
"""`late`: the tests took many times as long. `broken`: the module cannot be imported, so it counts for nothing."""

PATIENCE = 5.0
"""How many times as long as they took unchanged the tests of a change may take, …"""

GRACE = 30.0
"""… and how many seconds more."""

FIRST_RUN = 900.0
"""Seconds that the first, watched run of a module's tests may take."""

MOST_MEMORY = 4 << 30
"""Bytes of a process that runs tests: a change may make a loop that appends for ever."""


_OTHER_SECOND = 2_000_000_000
"""Nanoseconds."""


class NotRunnable(Exception):
    """The tests of a module do not pass as they are, or there are none."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the tests of a module do, unchanged."""

    lines: Mapping[str, frozenset[int]]
    """By test."""
    seconds: Mapping[str, float]
    blind: frozenset[str]
    """Tests of which it is not known what they run."""
    startup: float
    """Seconds that the whole run took beyond the tests."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Those that run its lines, the fastest first."""
        touched = frozenset(range(mutant.line, mutant.last_line + 1))
        chosen = [name for name in self.all_tests() if self.lines[name] & touched or name in self.blind]
        return chosen or self.all_tests()

    def all_tests(self) -> list[str]:
        """All, the fastest first."""
        return sorted((name for name in self.lines if name != IMPORTED), key=self.seconds.__getitem__)


class Copy:
    """A copy of the sources to change, with a scratch folder of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._package = folder / PACKAGE
        shutil.copytree(ROOT / PACKAGE, self._package)  # what is compiled stays valid: times are copied
        (folder / "t").mkdir()

    def watch(self, module: str, files: Sequence[str]) -> Watched:
        """Run these tests on the unchanged module.

        Raises:
            NotRunnable: nothing passes.
        """
        report = self._folder / "report.json"
        report.unlink(missing_ok=True)
        plan = {"watch": str(self._package / module), "report": str(report)}
        began = time.monotonic()
        code, output = self._run(plan, files, FIRST_RUN, all_of_them=True)
        took = time.monotonic() - began
        if not report.exists():
            raise NotRunnable(f"{module}: the tests cannot be run (exit code {code})\n{output[-3000:]}")
        told: Any = json.loads(report.read_text(encoding="utf-8"))
        lines = {name: frozenset[int](one["lines"]) for name, one in told["tests"].items()}
        seconds = {name: float(one["seconds"]) for name, one in told["tests"].items()}
        blind = frozenset(name for name, one in told["tests"].items() if one["blind"])
        if len(lines) < 2:
            raise NotRunnable(f"{module}: no test passes\n{output[-3000:]}")
        return Watched(lines, seconds, blind, max(0.0, took - sum(seconds.values())))

    def run(self, mutant: Mutant, watched: Watched) -> Outcome:
        """Run the tests against one change: those that run its lines, then the others: one may meet what was cached."""
        path = self._package / mutant.module
        source, was = path.read_bytes(), path.stat()
        tests = watched.tests_of(mutant)
        try:
            path.write_bytes(mutant.applied(source))
            # The first run has left it compiled, which holds for a file of the same length and second.
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns + _OTHER_SECOND))
            outcome = self._tried(mutant.module, tests, watched)
            rest = sorted(set(watched.all_tests()) - set(tests), key=watched.seconds.__getitem__)
            return self._tried(mutant.module, rest, watched) if outcome == "survived" and rest else outcome
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    def _tried(self, module: str, tests: list[str], watched: Watched) -> Outcome:
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        limit = GRACE + PATIENCE * (watched.startup + sum(watched.seconds[name] for name in tests))
        code, _ = self._run({"tests": tests}, files, limit)
        if code is None:
            return "late"
        if code in (0, 1):
            return "killed" if code else "survived"
        return "killed" if self._can_be_imported(module) else "broken"  # tests may fail as soon as they are read

    def _can_be_imported(self, module: str) -> bool:
        name = ".".join(("mcpbridge", *Path(module).with_suffix("").parts))
        environment = {**os.environ, "PYTHONPATH": str(self._package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", f"import {name}"]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0

    def _run(
        self, plan: object, files: Sequence[str], limit: float, *, all_of_them: bool = False
    ) -> tuple[int | None, str]:
        """The exit code of pytest, None if it was not over within the limit; and what it wrote."""
        planned = self._folder / "plan.json"
        planned.write_text(json.dumps(plan), encoding="utf-8")
        environment = {
            **os.environ,
            "MUTATION_PLAN": str(planned),
            "PYTHONPATH": os.pathsep.join([str(self._package.parent), str(ROOT / "scripts")]),
            # Two changes within a second have files of one length and one time; so nothing changed is kept compiled.
            "PYTHONDONTWRITEBYTECODE": "" if all_of_them else "1",
            "TMPDIR": str(self._folder / "t"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        command = [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--no-header",
                "--tb=line",
                "-p",
                "no:cacheprovider",
                "-p",
                "mutation_plugin",
            ),
            *([] if all_of_them else ["-x"]),
            *(f"--hypothesis-seed={self._seed}", *files),
        ]
        written = self._folder / "output.txt"
        with written.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process, planned)
        return code, written.read_text(encoding="utf-8", errors="replace")


@contextmanager
def copied(seed: int) -> Generator[Copy]:
    """A copy of the sources, which goes at the end."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        yield Copy(Path(folder), seed)


def _end(process: subprocess.Popen[bytes], planned: Path) -> None:
    """End it and all that it started: a daemon has a session of its own, but the same plan in its environment."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    mark = b"MUTATION_PLAN=" + os.fsencode(planned)
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
