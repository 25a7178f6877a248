"""Run the benchmark: `python -m benchmarks --help`. What the rows mean is in README.md beside this file."""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.book import Book
from benchmarks.readings import adopt_orphans, foreign_seconds, reap_orphans
from benchmarks.report import tables, verdicts
from benchmarks.rows import ROWS, Lab
from benchmarks.subjects import Subject, Unsupported, subjects

_ROOT = Path(__file__).resolve().parent.parent

_QUIET = 0.10
"""Share of the machine that other work may take before the figures mean little."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when the bridge or the floor failed somewhere; a peer's failure is only reported."""
    options = _parser().parse_args(arguments)
    if sys.platform != "linux":
        print(
            "the benchmark reads the CPU time of other processes the way Linux gives it; run it there", file=sys.stderr
        )
        return 2
    work: Path = options.work
    known = subjects(work / "environments", options.bridge, options.before)
    try:
        rows, chosen = _choice(options.only, known)
    except ValueError as error:
        print(f"--only: {error}", file=sys.stderr)
        return 2

    book = Book()
    installed: list[Subject] = []
    versions: dict[str, str] = {}
    for subject in chosen:
        try:
            subject.install()
            versions[subject.name] = subject.version()
            installed.append(subject)
        except Unsupported as error:
            book.failures.append(("install", subject.name, str(error)))

    rounds, starts, seconds = (2, 1, 0.15) if options.quick else (7, 3, 0.4)
    lab = Lab(installed, work / "runs", book, rounds, starts, seconds)
    adopt_orphans()
    begin, foreign = time.perf_counter(), foreign_seconds()
    for row in rows:
        lab.say(f"{row} …")
        ROWS[row](lab, row)
    took = time.perf_counter() - begin
    reap_orphans()

    machine = _machine()
    others = max(0.0, foreign_seconds() - foreign) / (took * int(machine["cores"]))
    ran = f"{rounds} rounds of {seconds:g} s a batch, {starts} of the starts; {took:.0f} s in all."
    print(f"{_sentence(machine, versions)} {ran} Other work took {others:.0%} of the machine.\n")
    if others > _QUIET:
        print("**The machine was busy with other work: do not publish these figures.**\n")
    for part in (tables(book, [subject.name for subject in known]), verdicts(book), _gaps(book)):
        if part:
            print(part + "\n")
    if options.json:
        settings = {
            "rounds": rounds,
            "starts": starts,
            "seconds": seconds,
            "quick": options.quick,
            "other_work": others,
        }
        document = {"machine": machine, "versions": versions, "settings": settings, **book.as_json()}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    # The labels of `neighbours` are the bridge in other company: theirs are the bridge's failures.
    peers = {subject.name for subject in known} - {"mcpbridge", "before", "floor", "direct"}
    return int(any(subject not in peers for _, subject, _ in book.failures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the bridge beside its peers.")
    parser.add_argument("--quick", action="store_true", help="a short run: under 90 s, less exact")
    names = f"rows: {', '.join(ROWS)}; subjects: {', '.join(s.name for s in subjects(Path(), ''))}"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=f"row or subject; many; {names}")
    command = f"{shlex.quote(sys.executable)} -m mcpbridge"
    about = "the bridge's command, without `serve` (default: this environment's)"
    parser.add_argument("--bridge", default=command, metavar="COMMAND", help=about)
    about = "the command of an older version, to be measured beside it as `before`"
    parser.add_argument("--before", default="", metavar="COMMAND", help=about)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, round by round")
    about = "where peers are installed and logs are kept (default: .bench)"
    parser.add_argument("--work", type=Path, default=_ROOT / ".bench", metavar="FOLDER", help=about)
    return parser


def _choice(only: Sequence[str], known: Sequence[Subject]) -> tuple[list[str], list[Subject]]:
    """The rows and subjects that were asked for; all of a kind of which none was named. Raises ValueError."""
    names = [name for entry in only for name in entry.split(",")]
    by_name = {subject.name: subject for subject in known}
    for name in names:
        if name not in ROWS and name not in by_name:
            raise ValueError(f"{name!r} is no row ({', '.join(ROWS)}) and no subject ({', '.join(by_name)})")
    rows = [row for row in ROWS if row in names] or list(ROWS)
    chosen = [subject for subject in known if subject.name in names] or list(known)
    return rows, chosen


def _machine() -> dict[str, str | int]:
    libraries: dict[str, str | int] = {}
    for name in ("uvloop", "orjson", "msgspec"):
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = "absent"
    cpu = platform.processor() or platform.machine()
    try:
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    python = platform.python_version()
    return {
        "cpu": cpu,
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "python": python,
        **libraries,
    }


def _sentence(machine: dict[str, str | int], versions: dict[str, str]) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    libraries = ", ".join(f"{name} {machine[name]}" for name in ("uvloop", "orjson", "msgspec"))
    place = f"{machine['cores']} cores ({machine['cpu']}), {machine['system']}, Python {machine['python']}"
    return f"Measured on {place}; {libraries}; {peers or 'no peers'}."


def _gaps(book: Book) -> str:
    """What is missing from the tables, and why."""
    lines = [f"- {row}, {subject}: failed: {reason}" for row, subject, reason in book.failures]
    lines += [f"- {row}, {subject}: {reason}" for row, subject, reason in dict.fromkeys(book.unsupported)]
    return "**Not measured**\n\n" + "\n".join(lines) if lines else ""


if __name__ == "__main__":
    sys.exit(main())
