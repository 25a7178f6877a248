"""Score what clients are given in place of large results: python -m benchmarks.result_scores [--budget N …]

Methods side by side, for each budget: tokens saved, questions answered at once and after one more step, and tokens
until a question is answered. The rules are in `result_rules.py`. Peers are installed on first use, as for the other
benchmark.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients import CallFailed
from benchmarks.result_fronts import Headroom, Shrinking, served_by, through_bridge
from benchmarks.result_methods import Method, by_library, cut, lossless, raw, truncated
from benchmarks.result_rules import Answer, Payload, Score, load, score, token_count, tokenizer
from benchmarks.subjects import Bridge, Unsupported, Upstream

__all__ = ["LosslessFigures", "lossless_figures", "main", "scored"]

_ROOT = Path(__file__).resolve().parent.parent
PAYLOADS = Path(__file__).resolve().parent / "data" / "tool-results"


@dataclass(frozen=True, slots=True)
class LosslessFigures:
    """The lossless tier alone, on the payloads that are JSON."""

    saved: float
    values: int
    exact: int
    """Values that were turned back and were the same to the last digit."""


def scored(method: Method, payloads: Sequence[Payload], budget: int, *, goes_on: bool) -> Score:
    """A method over all payloads."""
    return score(payloads, [method(p.text, p.mime, budget) for p in payloads], goes_on=goes_on)


def lossless_figures(payloads: Sequence[Payload]) -> LosslessFigures:
    """What the lossless tier saves of JSON, and whether it can be turned back."""
    from mcpbridge.results.document import Document
    from mcpbridge.results.exact_json import NotReadable, parse_json, write_json
    from mcpbridge.results.lossless.decode import restore
    from mcpbridge.results.lossless.encode import shortest

    before = after = values = exact = 0
    for payload in payloads:
        try:
            value = parse_json(payload.text)
        except NotReadable:
            continue
        found = shortest(Document(payload.text, "json", value))
        before, after = before + token_count(payload.text), after + token_count(found.text)
        values += 1
        exact += write_json(restore(found.text, found.form)) == write_json(value)
    return LosslessFigures(1 - after / before if before else 0.0, values, exact)


class _Run:
    """One run: the rows that were scored, and what was left out."""

    def __init__(self, payloads: list[Payload], folder: Path, work: Path, command: Sequence[str]) -> None:
        self._payloads, self._work = payloads, work
        self._environments = work / "environments"
        self._bridge = Bridge(command)
        self._server = Upstream("payloads", (sys.executable, str(_PROGRAM), str(folder)))
        self.rows: list[tuple[int, str, Score]] = []
        self.left_out: list[str] = []

    def functions(self, budget: int, *, library: bool) -> None:
        self._add(budget, "cut at N", cut, goes_on=False)
        self._add(budget, "truncate", truncated, goes_on=False)
        if library:
            self._add(budget, "mcpbridge, by its library", by_library, goes_on=True)

    def constants(self) -> None:
        self._add(0, "raw", raw, goes_on=False)
        self._add(0, "lossless form", lossless, goes_on=True)

    def bridge(self, budget: int) -> bool:
        """False if it could not be scored."""
        try:
            answers = through_bridge(self._bridge, self._server, self._payloads, budget, self._work / "runs")
        except (Unsupported, CallFailed) as error:
            self.left_out.append(f"mcpbridge at {budget}: {error}")
            return False
        self._keep(budget, "mcpbridge", answers)
        return True

    def peers(self, budgets: Sequence[int]) -> None:
        for budget in budgets:
            self._peer(Shrinking(self._environments, budget), budget)
        self._peer(Headroom(self._environments), 0)

    def _peer(self, peer: Shrinking | Headroom, budget: int) -> None:
        try:
            peer.install()
            if isinstance(peer, Headroom):
                answers = peer.answers(self._payloads, self._work / "runs")
            else:
                answers = served_by(peer, self._server, self._payloads, self._work / "runs")
        except (Unsupported, CallFailed) as error:
            self.left_out.append(f"{peer.name}: {error}")
            return
        self._keep(budget, f"{peer.name} {peer.pinned}", answers)

    def _add(self, budget: int, name: str, method: Method, *, goes_on: bool) -> None:
        self.rows.append((budget, name, scored(method, self._payloads, budget, goes_on=goes_on)))

    def _keep(self, budget: int, name: str, answers: list[Answer]) -> None:
        # Peers are credited with a further step although not all of them offer one.
        self.rows.append((budget, name, score(self._payloads, answers, goes_on=True)))


_PROGRAM = Path(__file__).resolve().parent / "programs" / "upstream_payloads.py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when the bridge could not be scored."""
    options = _parser().parse_args(arguments)
    budgets: list[int] = options.budget or [2000, 800]
    payloads = load(options.payloads)
    if not payloads:
        print(f"no payloads in {options.payloads}", file=sys.stderr)
        return 2
    run = _Run(payloads, options.payloads, options.work, shlex.split(options.bridge))
    run.constants()
    worked = True
    for budget in budgets:
        run.functions(budget, library=options.library)
        worked = options.library or (run.bridge(budget) and worked)
    if not options.no_peers:
        run.peers(budgets)
    figures = lossless_figures(payloads)
    if options.json:
        print(json.dumps(_as_json(run, figures), indent=1))
    else:
        print(_report(run, figures, payloads))
    return int(not worked)


def _report(run: _Run, figures: LosslessFigures, payloads: list[Payload]) -> str:
    questions = sum(len(payload.questions) for payload in payloads)
    tokens = sum(token_count(payload.text) for payload in payloads)
    lines = [
        f"{len(payloads)} payloads, {tokens:,} tokens ({tokenizer()}), {questions} questions.",
        "",
        "| characters | method | saved | shown at once | after one step | tokens per answer |",
        "|---:|:---|---:|---:|---:|---:|",
    ]
    for budget, name, found in sorted(run.rows, key=lambda row: (row[0] > 0, -row[0])):
        cells = [f"{budget:,}" if budget else "any", name, f"{found.saved:.1%}", f"{found.at_once:.1%}"]
        step = f"{found.after_one_step:.1%}" if found.stepped or found.at_once == 1 else "none"
        lines.append(f"| {' | '.join([*cells, step, f'{found.tokens_per_answer:,.0f}'])} |")
    lines += ["", f"Lossless form of JSON: {figures.saved:.1%} saved, {figures.exact} of {figures.values} exact."]
    return "\n".join([*lines, *(f"Left out: {reason}" for reason in run.left_out)])


def _as_json(run: _Run, figures: LosslessFigures) -> dict[str, Any]:
    rows = [
        {"budget": budget or None, "method": name, "saved": found.saved, "shown": found.at_once}
        | {"after_one_step": found.after_one_step, "tokens_per_answer": found.tokens_per_answer, **asdict(found)}
        for budget, name, found in run.rows
    ]
    return {"tokenizer": tokenizer(), "rows": rows, "lossless_json": asdict(figures), "left_out": run.left_out}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.result_scores", description="Score what clients are given in place of large results."
    )
    about = "characters of a rewritten result; many (default: 2000 and 800)"
    parser.add_argument("--budget", type=int, action="append", default=[], metavar="N", help=about)
    parser.add_argument("--payloads", type=Path, default=PAYLOADS, metavar="FOLDER", help="NAME.payload and NAME.json")
    about = "score the bridge's functions, not a running bridge"
    parser.add_argument("--library", action="store_true", help=about)
    parser.add_argument("--no-peers", action="store_true", help="leave the programs of others out")
    command = f"{shlex.quote(sys.executable)} -m mcpbridge"
    parser.add_argument("--bridge", default=command, metavar="COMMAND", help="the bridge's command, without `serve`")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    about = "where peers are installed and logs are kept (default: .bench)"
    parser.add_argument("--work", type=Path, default=_ROOT / ".bench", metavar="FOLDER", help=about)
    return parser


if __name__ == "__main__":
    sys.exit(main())
