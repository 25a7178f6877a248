"""Draw the overview: clients, the bridge with what it saves, servers; with the numbers of a run of `make run`.

    python scripts/pictures/draw_overview.py docs/images/overview.svg

The drawing is `overview.template.svg`, in which `@name@` stands for a number.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_BAR = 328
"""Pixels of a bar that stands for all tokens."""


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 if a scene of the run does not hold; 2 for wrong arguments."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.executable, str(_HERE.parents[1] / "examples/show.py"), "--json"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        print(run.stdout, file=sys.stderr)
        return 1
    drawn = filled((_HERE / "overview.template.svg").read_text("utf-8"), numbers(json.loads(run.stdout)))
    Path(arguments[0]).write_text(drawn, "utf-8")
    print(f"{arguments[0]}: {len(drawn.encode()):,} bytes")
    return 0


def numbers(played: dict[str, Any]) -> dict[str, str]:
    """What the names in the drawing stand for."""
    items = {item["what"]: item for item in played["tokens"]["items"]}
    shown = {name: f"{number:,}" for name, number in played["facts"].items()}
    for name, what in (("definitions", "list of tools"), ("result", "a large result")):
        without, through = items[what]["without"], items[what]["with"]
        shown[f"{name}_without"], shown[f"{name}_with"] = f"{without:,}", f"{through:,}"
        shown[f"{name}_saved"] = f"−{1 - through / without:.0%}"
        shown[f"{name}_bar"] = f"{max(4.0, _BAR * through / without):.1f}"
    shown["tool_dots"] = dots(played["facts"]["tools_without"])
    return shown


def dots(count: int) -> str:
    """As many dots as there are tools, one of them found."""
    step = _BAR / count
    size = min(5.0, step - 1)
    return "".join(
        f'<rect x="{316 + index * step:.1f}" y="289" width="{size:.1f}" height="12" rx="1.5"{_found(index, count)}/>'
        for index in range(count)
    )


def _found(index: int, count: int) -> str:
    return ' fill="var(--brand)"' if index == count // 3 else ""


def filled(template: str, shown: dict[str, str]) -> str:
    """The drawing with its numbers; a name without one raises KeyError."""
    return re.sub(r"@(\w+)@", lambda found: shown[found[1]], template)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
