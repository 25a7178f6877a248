"""What redaction costs for a KB of a result: `python -m benchmarks.redaction_cost [--rounds N]`.

Microseconds of CPU for 1,024 bytes of a result, the fastest of some rounds: `redact = ["secrets"]`, `["pii"]` and both,
beside reading and writing the same JSON. The results are those in `data/tool-results/` and a log with a secret in every
tenth line. Placeholders are not kept: that is a look-up of a table.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from mcpbridge.pipeline.redaction import redacted_json
from mcpbridge.protocol.canonical_json import decode_exactly
from mcpbridge.protocol.jsonrpc import encode

__all__ = ["main"]

_FOLDER = Path(__file__).with_name("data") / "tool-results"
_LONGEST = 200_000
"""Characters of each payload that are taken."""
_KINDS: Mapping[str, tuple[str, ...]] = {"secrets": ("secrets",), "pii": ("pii",), "both": ("secrets", "pii")}


def _results() -> dict[str, bytes]:
    texts = {file.stem: file.read_text("utf-8")[:_LONGEST] for file in sorted(_FOLDER.glob("*.payload"))}
    line = "2026-11-29T10:00:{:02d}Z INFO request {} handled in {} ms by worker-{}"
    secret = "2026-11-29T10:00:{:02d}Z WARN retry {} token=a1B2c3D4e5F6g7H8{:04d} user=ada{}@example.org"
    lines = [
        (secret if number % 10 == 0 else line).format(number % 60, number, number, number) for number in range(1500)
    ]
    texts["log with secrets"] = "\n".join(lines)
    return {name: json.dumps({"content": [{"type": "text", "text": text}]}).encode() for name, text in texts.items()}


def _microseconds(work: Callable[[], object], size: int, rounds: int) -> float:
    """For 1,024 bytes."""
    fastest = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - before)
    return fastest * 1e6 * 1024 / size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redaction_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'':>18} {'KB':>6} {'JSON':>6} {'secrets':>8} {'pii':>6} {'both':>6}   µs of CPU for a KB")
    totals = dict.fromkeys(("JSON", *_KINDS), 0.0)
    results = _results()
    for name, raw in results.items():
        took = {"JSON": _microseconds(partial(_read_and_write, raw), len(raw), rounds)}
        for title, kinds in _KINDS.items():
            work = partial(redacted_json, raw, kinds, lambda kind, value: f"‹{kind}:0›")
            took[title] = _microseconds(work, len(raw), rounds)
        print(f"{name:>18} {len(raw) / 1024:6.1f} {_columns(took)}", flush=True)
        for title, figure in took.items():
            totals[title] += figure / len(results)
    print(f"{'mean':>18} {'':>6} {_columns(totals)}")


def _read_and_write(raw: bytes) -> bytes:
    return encode(decode_exactly(raw))


def _columns(took: Mapping[str, float]) -> str:
    return f"{took['JSON']:6.1f} {took['secrets']:8.1f} {took['pii']:6.1f} {took['both']:6.1f}"


if __name__ == "__main__":
    main()
