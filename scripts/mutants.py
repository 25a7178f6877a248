"""Change the modules that decide things, a line at a time, and see that a test notices: `make mutants`.

    python scripts/mutants.py --seed 7 --most 100
    python scripts/mutants.py --modules pipeline/permissions results/query/predicates.py

A sample of all changes (`mutation_edits.py`) is drawn by the seed and run (`mutation_runs.py`). Those that live are
listed: each is a promise that no test holds, or a change that changes nothing. The latter stand in
`tests/mutants/equivalent.toml`, each with its reason. The modules, and the tests of each beside those that mirror it,
stand in `tests/mutants/modules.toml`.

The exit code is 1 if fewer than 95 of 100 changes die, of those that are not called equivalent, or if more than 5 of
100 are.
"""

import argparse
import json
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutation_edits import Mutant, mutants_of
from mutation_runs import PACKAGE, ROOT, NotRunnable, Outcome, Watched, copied
from quick import tests_of

TABLES = ROOT / "tests" / "mutants"

LEAST_KILLED = 0.95
"""Of the changes that are not equivalent."""

MOST_EQUIVALENT = 0.05
"""Of all changes tried."""

MOST = 200
"""Changes in a sample, unless `--most` says otherwise; about 2 s each."""


class Mistaken(Exception):
    """A table or an argument names what there is not."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one change."""

    mutant: Mutant
    outcome: Outcome | str
    reason: str = ""
    """Why it is equivalent."""


def modules_and_tests() -> dict[str, list[str]]:
    """The modules that decide things, and the test files of each.

    Raises:
        Mistaken: a name in the table is no file.
    """
    table: Any = tomllib.loads((TABLES / "modules.toml").read_text(encoding="utf-8"))
    chosen: dict[str, list[str]] = {}
    for pattern, more in table.items():
        found = sorted((ROOT / PACKAGE).glob(pattern))
        if not found:
            raise Mistaken(f"modules.toml: there is no {pattern}")
        for path in found:
            if path.name in ("__init__.py", "settings.py"):
                continue
            name = path.relative_to(ROOT / PACKAGE).as_posix()
            own = [str(test) for test in tests_of(PACKAGE / name, ROOT)]
            missing = [test for test in more if not (ROOT / test).exists()]
            if missing:
                raise Mistaken(f"modules.toml: there is no {', '.join(missing)}")
            chosen[name] = list(dict.fromkeys([*chosen.get(name, []), *own, *more]))
    return chosen


def equivalent_entries() -> list[dict[str, str]]:
    """The changes that are called equivalent, as the file has them."""
    table: Any = tomllib.loads((TABLES / "equivalent.toml").read_text(encoding="utf-8"))
    return table.get("mutant", [])


def equivalents(mutants: Iterable[Mutant], modules: Iterable[str]) -> dict[tuple[str, str, str], str]:
    """Which changes are called equivalent, by their keys, and why.

    Raises:
        Mistaken: an entry of one of these modules is no change that there is, or says no reason.
    """
    known, chosen = {one.key for one in mutants}, set(modules)
    named: dict[tuple[str, str, str], str] = {}
    for entry in equivalent_entries():
        key = entry["module"], " ".join(entry["before"].split()), " ".join(entry["after"].split())
        if entry["module"] in chosen and key not in known:
            raise Mistaken(f"equivalent.toml: {key[0]} has no change from `{key[1]}` to `{key[2]}`")
        if len(entry["why"].split()) < 3:
            raise Mistaken(f"equivalent.toml: why does the change to `{key[2]}` in {key[0]} change nothing?")
        named[key] = entry["why"]
    return named


def sampled(mutants: Sequence[Mutant], most: int, seed: int) -> list[Mutant]:
    """So many of them, the same for the same seed, in the order of modules and lines."""
    numbers = range(len(mutants))
    return [mutants[at] for at in sorted(random.Random(seed).sample(numbers, min(most, len(mutants))))]


def run(
    chosen: Sequence[Mutant], tests: Mapping[str, list[str]], equal: Mapping[tuple[str, str, str], str], seed: int
) -> list[Result]:
    """Try them one after the other."""
    results: list[Result] = []
    with copied(seed) as copy:
        watched: Watched | None = None
        module = ""
        for number, mutant in enumerate(chosen, 1):
            if mutant.key in equal:
                results.append(Result(mutant, "equivalent", equal[mutant.key]))
                continue
            if mutant.module != module:
                module = mutant.module
                watched = copy.watch(module, tests[module])
            assert watched is not None
            results.append(Result(mutant, copy.run(mutant, watched)))
            _progress(number, len(chosen), results[-1])
    return results


def report(results: Sequence[Result]) -> tuple[str, bool]:
    """What came out, for people; and whether it is enough."""
    counts = Counter(result.outcome for result in results)
    tried = len(results) - counts["broken"]
    different = tried - counts["equivalent"]
    dead = counts["killed"] + counts["late"]
    share = dead / different if different else 1.0
    equal = counts["equivalent"] / tried if tried else 0.0
    text = (
        f"{dead} of {different} changes died ({share:.1%}; {counts['late']} by taking too long), "
        f"{counts['equivalent']} are equivalent ({equal:.1%}), {counts['broken']} could not be run"
    )
    return text, share >= LEAST_KILLED and equal <= MOST_EQUIVALENT


def as_json(results: Sequence[Result], seed: int) -> str:
    """The same for programs."""
    rows = [
        {
            "module": result.mutant.module,
            "line": result.mutant.line,
            "before": result.mutant.before,
            "after": result.mutant.after,
            "outcome": result.outcome,
            **({"why": result.reason} if result.reason else {}),
        }
        for result in results
    ]
    return json.dumps({"seed": seed, "mutants": rows}, indent=1)


def main(arguments: Sequence[str]) -> int:
    """Run a sample; 0 if enough die, 1 if not, 2 if it cannot be run."""
    parser = argparse.ArgumentParser(description="Change modules a line at a time, and see that a test notices.")
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="of the sample; today's date")
    parser.add_argument("--most", type=int, default=MOST, help=f"how many changes are tried at most ({MOST})")
    parser.add_argument("--modules", nargs="*", default=[], help="only these, or those below these folders")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--list", action="store_true", help="say how many changes each module has, and run nothing")
    options = parser.parse_args(arguments)
    try:
        tests = _those(modules_and_tests(), options.modules)
        mutants = [
            one for name in tests for one in mutants_of(name, (ROOT / PACKAGE / name).read_text(encoding="utf-8"))
        ]
        equal = equivalents(mutants, tests)
        if options.list:
            for name, count in Counter(one.module for one in mutants).items():
                print(f"{count:6} {name}: {' '.join(tests[name])}")
            return 0
        chosen = sampled(mutants, options.most, options.seed)
        print(f"{len(chosen)} of {len(mutants)} changes of {len(tests)} modules, seed {options.seed}", flush=True)
        results = run(chosen, tests, equal, options.seed)
    except (Mistaken, NotRunnable) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json is not None:
        options.json.write_text(as_json(results, options.seed), encoding="utf-8")
    text, is_enough = report(results)
    print(text)
    return 0 if is_enough else 1


def _those(tests: dict[str, list[str]], wanted: Sequence[str]) -> dict[str, list[str]]:
    if not wanted:
        return tests
    names = [name.removeprefix(f"{PACKAGE}/").rstrip("/") for name in wanted]
    chosen = {
        module: files
        for module, files in tests.items()
        if any(module == name or module.startswith(f"{name}/") for name in names)
    }
    missing = [name for name in names if not any(module == name or module.startswith(f"{name}/") for module in chosen)]
    if missing:
        raise Mistaken(f"not in modules.toml: {', '.join(missing)}")
    return chosen


def _progress(number: int, count: int, result: Result) -> None:
    if result.outcome == "survived":
        mutant = result.mutant
        print(f"[{number}/{count}] {mutant.module}:{mutant.line} survived")
        print(f"  - {mutant.before}\n  + {mutant.after}", flush=True)
    elif number % 25 == 0:
        print(f"[{number}/{count}]", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
