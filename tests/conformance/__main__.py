"""Run the official conformance suite through the bridge, print what came of it, and fail if anything was lost.

PYTHONPATH=tests python -m conformance            what the project promises
PYTHONPATH=tests python -m conformance --all      the transports that no revision knows as well
PYTHONPATH=tests python -m conformance --fleet    also through a balancer before three bridges that act as one
PYTHONPATH=tests python -m conformance --only 'stdio*' --keep /tmp/results
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from conformance.fleet import missing
from conformance.legs import CLIENT, DIRECT, FLEET_LEGS, FURTHER_LEGS, LEGS, ServerLeg
from conformance.results import Expected, Outcome, Verdict, expectations, judge, read_outcomes
from conformance.suite import HERE, REVISIONS, Suite
from support.programs.preloaded_python import prepared

Outcomes = dict[str, Outcome]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also over SSE and WebSocket upstreams")
    parser.add_argument("--fleet", action="store_true", help="also before three bridges, which take requests in turn")
    parser.add_argument("--only", default="*", metavar="GLOB", help="legs to run, by name")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave the suite's results and all logs")
    parser.add_argument("--jobs", type=int, default=min(3, os.cpu_count() or 1), help="how many runs at a time")
    options = parser.parse_args()
    suite = Suite()
    suite.prepare()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        all_legs = [*LEGS, *(FURTHER_LEGS if options.all else []), *(_of_fleet() if options.fleet else [])]
        legs = [leg for leg in all_legs if fnmatch(leg.name, options.only)]
        with_client = fnmatch(CLIENT.name, options.only)
        problems = _run(suite, folder, [DIRECT, *legs] if legs else [], with_client=with_client, jobs=options.jobs)
        verdicts = list(_verdicts(suite, folder, legs, problems, with_client=with_client))
    print(_table(verdicts))
    print(f"\n{time.monotonic() - started:.0f} s")
    return 0 if verdicts and all(verdict.is_good for verdict in verdicts) else 1


def _of_fleet() -> list[ServerLeg]:
    if absent := missing():
        print(f"{' and '.join(absent)} not installed (`make redis proxies`): nothing runs before several bridges")
        return []
    return FLEET_LEGS


def _run(suite: Suite, folder: Path, legs: list[ServerLeg], *, with_client: bool, jobs: int) -> dict[str, str]:
    """Everything, a few at a time: the long runs first, then the many short ones. What kept a leg from running."""
    into = folder / CLIENT.name
    program = HERE / "client.py"
    with tempfile.TemporaryDirectory() as near, prepared(Path(near), program) as be, ThreadPoolExecutor(jobs) as pool:
        client = [*be, str(program)]
        running = {leg.name: pool.submit(leg.run, suite, folder / leg.name) for leg in legs}
        single = [
            pool.submit(CLIENT.run, suite, client, into, revision, name)
            for revision in (CLIENT.revisions if with_client else ())
            for name in CLIENT.scenarios(suite, revision)
        ]
        for run in single:
            run.result()
        return {name: str(problem) for name, run in running.items() if (problem := run.exception())}


def _verdicts(
    suite: Suite, folder: Path, legs: list[ServerLeg], problems: dict[str, str], *, with_client: bool
) -> Iterator[Verdict]:
    expected = expectations(HERE / "expected_failures.toml")
    direct = {revision: read_outcomes(folder / DIRECT.name / revision) for revision in REVISIONS if legs}
    for revision, outcomes in direct.items():
        yield _directly(suite, revision, outcomes)
    for leg in legs:
        for revision in leg.revisions:
            outcomes = read_outcomes(folder / leg.name / revision)
            must_pass = [name for name, outcome in direct[revision].items() if outcome.passed]
            scored = suite.scored(revision, "server") or list(direct[revision])
            verdict = judge(leg.name, revision, outcomes, must_pass, scored, expected)
            if leg.name in problems:
                verdict.lost.clear()
                verdict.lost["everything"] = problems[leg.name]
            yield verdict
    for revision in CLIENT.revisions if with_client else ():
        wanted = CLIENT.scenarios(suite, revision)
        outcomes = _client_outcomes(folder / CLIENT.name / revision)
        yield judge(CLIENT.name, revision, outcomes, wanted, suite.scored(revision, "client"), expected)


def _directly(suite: Suite, revision: str, outcomes: Outcomes) -> Verdict:
    """The measure itself must be whole: every scored scenario passes when nothing stands between."""
    scored = suite.scored(revision, "server") or list(outcomes)
    passed = [name for name, outcome in outcomes.items() if outcome.passed]
    verdict = judge(DIRECT.name, revision, outcomes, {*scored, *passed}, scored, _NOTHING)
    if verdict.scored != REVISIONS[revision]:
        verdict.lost["the suite"] = f"{verdict.scored} scored scenarios instead of {REVISIONS[revision]}"
    return verdict


def _client_outcomes(folder: Path) -> Outcomes:
    """Each scenario lies in a folder of its own, so that two at a time do not meet."""
    merged: Outcomes = {}
    for scenario in sorted(folder.iterdir()):
        merged |= read_outcomes(scenario)
    return merged


def _table(verdicts: list[Verdict]) -> str:
    """A row for each leg; then what was lost, what was expected, and what was a surprise."""
    rows = {verdict.leg: {v.revision: v for v in verdicts if v.leg == verdict.leg} for verdict in verdicts}
    lines = ["".join(word.ljust(20) for word in ("", *REVISIONS)).rstrip()]
    for leg, row in rows.items():
        cells = [_cell(row.get(revision)) for revision in REVISIONS]
        lines.append("".join(word.ljust(20) for word in (leg, *cells)).rstrip())
    for verdict in verdicts:
        at = f"{verdict.leg}, {verdict.revision}"
        lines += [f"\nLOST      {at}: {name}\n          {why}" for name, why in verdict.lost.items()]
        lines += [f"\nSURPRISE  {at}: {name} passes, but expected_failures.toml lists it" for name in verdict.surprises]
        lines += [f"\nexpected  {at}: {name}\n          {why}" for name, why in verdict.excused.items()]
    return "\n".join(lines)


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    further = len(verdict.passed) - verdict.scored_passed
    wanted = len(verdict.passed) + len(verdict.lost) + len(verdict.excused) - verdict.scored
    beside = f" +{further}/{wanted}" if wanted else ""
    return f"{verdict.scored_passed}/{verdict.scored}{beside}"


_NOTHING: list[Expected] = []

if __name__ == "__main__":
    sys.exit(main())
